"""Whether an owner is dead."""

import os
import subprocess
import sys

from sessions import lease_owners

TELL_AND_WAIT = "from sessions.lease_owners import this_owner; print(this_owner(), flush=True); input()"


def test_a_process_is_dead_once_it_was_killed_even_while_nobody_has_looked_after_it():
    with subprocess.Popen(
        [sys.executable, "-c", TELL_AND_WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        assert not lease_owners.is_dead(owner)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended and stays a zombie
        assert lease_owners.is_dead(owner)
    assert lease_owners.is_dead(owner)


def test_this_process_and_those_of_other_machines_are_not_known_to_be_dead():
    host, _, process = lease_owners.this_owner().partition(":")
    assert not lease_owners.is_dead(lease_owners.this_owner())
    assert not lease_owners.is_dead(f"elsewhere/{host.rpartition('/')[2]}:{process}")
    assert not lease_owners.is_dead("nonsense")


def test_a_process_of_another_pid_namespace_is_known_to_be_dead_only_by_whoever_holds_the_home():
    host, _, process = lease_owners.this_owner().partition(":")
    other = f"{host.rpartition('/')[0]}/1:{process}"
    assert not lease_owners.is_dead(other)
    assert lease_owners.is_dead(other, alone=True)
    assert not lease_owners.is_dead(lease_owners.this_owner(), alone=True)


def test_an_owner_before_the_last_boot_or_of_a_reused_number_is_dead():
    host, _, process = lease_owners.this_owner().partition(":")
    name = host.partition("/")[0]
    assert lease_owners.is_dead(f"{name}/00000000:{process}")
    assert lease_owners.is_dead(f"{host}:{os.getpid()}:1")
