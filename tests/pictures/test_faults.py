from __future__ import annotations

import pytest

from fleet.cli.main import main
from tests.pictures.faults import DELAYS, FAULTS, assign_letters, format_key, select_faults


def test_there_are_seven_faults_with_pictures_after_5_10_and_60_seconds() -> None:
    assert len(FAULTS) == len({fault.name for fault in FAULTS}) == 7
    assert DELAYS == (5, 10, 60)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_commands_of_a_fault_exist(fault: object) -> None:
    """`refloat` has each command, with each of its flags."""
    for command in filter(None, (fault.cause, fault.repair)):  # type: ignore[attr-defined]
        group, name, *_ = command
        subcommand = main.get_command(None, group).get_command(None, name)  # type: ignore[attr-defined, arg-type]
        flags = {flag for parameter in subcommand.params for flag in parameter.opts}
        assert {argument for argument in command if argument.startswith("--")} <= flags


def test_selected_faults_keep_their_order() -> None:
    assert [fault.name for fault in select_faults(["rollout", "frozen-proxy"])] == ["frozen-proxy", "rollout"]
    assert select_faults([]) == FAULTS
    with pytest.raises(ValueError, match="unknown fault: sunk-proxy; there are frozen-proxy, "):
        select_faults(["sunk-proxy"])


def test_letters_hide_the_fault_and_the_key_tells_it() -> None:
    letters = assign_letters(FAULTS, seed=1)
    assert sorted(letters.values()) == list("abcdefg")
    assert list(letters.values()) != sorted(letters.values())
    lines = format_key(FAULTS, letters).splitlines()
    assert [line[0] for line in lines] == list("abcdefg")
    assert all(any(fault.answer in line for line in lines) for fault in FAULTS)
