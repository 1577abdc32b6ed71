/* A Python that runs one program and nothing else.
 *
 * File capabilities belong to whoever starts the file that carries them. On a
 * copy of python3 they would serve any script; so this program has Python inside
 * (linked statically) and its one module compiled in. The command line goes to that
 * module alone; no option of Python's is read, no PYTHON* variable, no file of the
 * user, no folder that an argument or the environment could name.
 *
 * Built with -DMODULE="package.module" -DLIBRARY="folder of that package".
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WIDE_(text) L##text
#define WIDE(text) WIDE_(text)

static wchar_t *const search_path[] = {
    WIDE(LIBRARY),
    WIDE(STDLIB),
    WIDE(STDLIB) L"/lib-dynload",
};

/* Where libxtables would look for code to load into iptables, which this program
 * starts and which has capabilities too. The loader's own variables (LD_*) need no
 * care here: it drops them for every program whose file has capabilities. */
static const char *const unwanted[] = {
    "XTABLES_LIBDIR",
    "IPTABLES_LIB_DIR",
    "IP6TABLES_LIB_DIR",
};

/* The file gives its capabilities as permitted, not as effective: a file with the
 * effective bit can't be started at all (EPERM) where the container may not have
 * every one of them, and then nobody would be told which one it lacks. */
static void use_capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, sets) != 0)
        return;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        sets[i].effective = sets[i].permitted;
    syscall(SYS_capset, &header, sets); /* or else the program will say what it lacks */
}

static void check(PyStatus status)
{
    if (PyStatus_Exception(status))
        Py_ExitStatusException(status);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
        unsetenv(unwanted[i]);
    use_capabilities();

    PyPreConfig before;
    PyPreConfig_InitIsolatedConfig(&before);
    before.utf8_mode = 1; /* whatever the locale, which no pod sets */
    check(Py_PreInitialize(&before));

    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    config.install_signal_handlers = 1; /* KeyboardInterrupt; EPIPE, not SIGPIPE */
    config.site_import = 0;
    config.write_bytecode = 0;
    check(PyConfig_SetBytesArgv(&config, argc, argv));
    check(PyConfig_SetString(&config, &config.program_name, WIDE(PROGRAM)));
    check(PyConfig_SetString(&config, &config.executable, WIDE(PROGRAM)));
    config.module_search_paths_set = 1;
    for (size_t i = 0; i < sizeof search_path / sizeof *search_path; i++)
        check(PyWideStringList_Append(&config.module_search_paths, search_path[i]));
    check(Py_InitializeFromConfig(&config));
    PyConfig_Clear(&config);

    PyObject *module = PyImport_ImportModule(MODULE);
    if (module == NULL)
        PyErr_Print(); /* does not return after SystemExit */
    Py_XDECREF(module);
    return Py_FinalizeEx() < 0 || module == NULL;
}
