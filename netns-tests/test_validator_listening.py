"""network-validator at a port that it can't have: who has it is named."""

from __future__ import annotations

from validator_runs import UNPRIVILEGED, VALIDATOR, at, run, told

from proxyinit.lab import PROXY_UID, WORLD, Lab


def test_the_proxy_is_there_already(lab: Lab, version: int) -> None:
    """Its port is taken: at once, and who has it is named."""
    lab.proxy()
    listen = at({4: "0.0.0.0", 6: "::"}[version], 4140)
    target = at(WORLD[version])
    found = run(lab, f"--listen-addr={listen}", "--connect-addr", target, timeout="9h")
    assert found.status == 95
    (error,) = found.errors
    assert error["cause"] == '"listen address taken"'
    assert error["error"] == "Address already in use (os error 98)"
    assert f"taken by user {PROXY_UID} (process " in error["message"]


def test_who_has_the_port_when_other_processes_are_hidden(
    lab: Lab, public_program: list[str]
) -> None:
    """Without the right to look at processes the user is known still."""
    lab.proxy()
    program = [*public_program[:-1], "proxyinit.validator", "--log-format=json"]
    done = lab.pod.exec([*UNPRIVILEGED, *program])
    (error,) = told(done.returncode, done.stderr).errors
    assert f"is taken by user {PROXY_UID}: " in error["message"]


def test_an_address_of_somebody_else(bare: Lab) -> None:
    """No interface of the pod has it."""
    done = bare.pod.exec([*VALIDATOR, "--listen-addr=192.0.2.9:4140"])
    (error,) = told(done.returncode, done.stderr).errors
    assert done.returncode == 95
    assert error["error"] == "Cannot assign requested address (os error 99)"
    assert "expected an address of this pod" in error["message"]
