"""Into every pod: the init container and the sidecar, written into its spec.

The way through the package; what is above the line is pure::

    workload    an object, and the pod template in it
    values      the chart's values; overrides: what annotations change of them
    decision    whether a pod is injected, and why not
    injection   the patch: recipe, containers, env, volumes, patch
    syntax      YAML as Kubernetes reads it; layout, edit, alignment: back into text
    manifest    a document of a stream: transform or uninject, in the text it came in
    review      an object that is about to be made; admission: the bytes around it
    ---
    sources, run, inject_cli                 the command line: inject, uninject
    webhook, endpoints, server, serve        the webhook, beside what it knows of the
    api_cache, configuration, certificates   cluster, its settings and its certificate
"""
