"""Every case that the protocol's own tests, its design and its known defects name, and the test that covers it here.

The cases are those of openconfig/grpctunnel's tests and what those leave out. Where the Go code is wrong, the words say
what it does. A name that stands here must be a test's.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[3]
_HERE, _PURE = "fleet/transport/tunnel", "fleet/protocol/tunnel"
_STREAM, _CODEC = f"{_HERE}/test_stream.py", f"{_HERE}/test_codec.py"
_SERVER, _CLIENT = f"{_HERE}/test_server.py", f"{_HERE}/test_client.py"
_PUMP, _LINK, _FAULTS = f"{_HERE}/test_pump.py", f"{_HERE}/test_link.py", f"{_HERE}/test_faults.py"
_STRICT, _HANDLERS = f"{_HERE}/test_strict_peer.py", f"{_HERE}/test_handlers.py"
_IDENTITY, _GOLDEN = f"{_HERE}/test_identity.py", f"{_HERE}/test_golden_bytes.py"
_RULES, _SESSIONS = f"{_PURE}/test_server_state.py", f"{_PURE}/test_server_state_sessions.py"
_CLIENT_RULES, _TAGS = f"{_PURE}/test_client_state.py", f"{_PURE}/test_messages.py"
_REGISTER = f"{_HERE}/test_register_stream.py"
_PROGRAM, _INTEROP = "fleet/cli/test_tunnel.py", "flow/test_tunnel_interop.py"

CASES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "stream": (
        ("reads with buffers of 1 to 100 bytes, remainder kept", _STREAM, "test_read_of_any_size_keeps_the_rest"),
        ("close is the end", _STREAM, "test_write_eof_ends_one_direction"),
        ("read after a local close; a blocked read wakes", _STREAM, "test_read_wakes_on_a_local_close"),
        ("a broken transport is an error", _STREAM, "test_abort_is_told_to_the_other_end"),
        ("write after close", _STREAM, "test_write_eof_ends_one_direction"),
        ("write when the other end has closed", _STREAM, "test_write_after_the_server_closed_says_so"),
        ("close says close: true, alone", _CODEC, "test_close_is_close_alone"),
    ),
    "connection map and tags": (
        ("tags count away from zero and never repeat", _TAGS, "test_tags_count_away_from_zero"),
        ("tags run out", _TAGS, "test_tags_used_up"),
        ("unknown and negative tags", _SESSIONS, "test_attach_without_a_session"),
        ("a tag twice, or of another connection", _SESSIONS, "test_attach_twice_or_elsewhere"),
        ("nothing is left in it", _FAULTS, "test_client_that_came_and_went_a_hundred_times_leaves_nothing"),
    ),
    "constructors: a handler is one function, so neither callback can be missing": (
        ("a handler by a function alone", _HANDLERS, "test_serve_serves_with_its_function"),
        ("a client without one refuses; Go says nothing", _CLIENT_RULES, "test_asked_without_a_handler"),
    ),
    "capabilities (0.1)": (
        ("neither end has a handler", _RULES, "test_capabilities_no_handler_anywhere"),
        ("neither end, the client's side", _CLIENT_RULES, "test_capabilities_no_handler_anywhere"),
        ("only one end has", _RULES, "test_capabilities_one_handler_is_enough"),
        ("they must come first", _RULES, "test_capabilities_must_come_first"),
        ("from the server, too", _CLIENT_RULES, "test_capabilities_must_come_first"),
        ("a session to who has no handler; Go panics", _CLIENT_RULES, "test_open_server_without_handler"),
    ),
    "Register at the server": (
        ("second Register of a connection", _SERVER, "test_register_twice_on_one_connection_is_refused"),
        ("what is received is no message", _SERVER, "test_register_with_garbage_ends_with_a_sentence"),
        ("the client goes, for any reason", _RULES, "test_targets_go_with_their_client"),
        ("the client does not read", _SERVER, "test_client_that_reads_nothing_is_ended_in_time"),
        ("another version", _SERVER, "test_register_of_another_version_is_refused_by_name"),
    ),
    "targets and subscriptions (0.2)": (
        ("comes, goes, and is answered", _RULES, "test_target_comes_and_goes"),
        ("duplicate target of another client", _SERVER, "test_target_of_another_client_is_refused_and_both_live"),
        ("duplicate of the same client come back", _SERVER, "test_target_of_the_same_client_come_back_is_displaced"),
        ("of the same certificate", _IDENTITY, "test_same_certificate_come_back_displaces_its_stale_target"),
        ("of another certificate", _IDENTITY, "test_another_certificate_does_not_displace_a_target"),
        ("what a certificate may claim", _IDENTITY, "test_certificate_binds_the_targets_it_names"),
        ("answers reach who asked, in order", _CLIENT, "test_answers_reach_whoever_asked_in_their_order"),
        ("subscription before any target is there", _RULES, "test_subscription_before_any_target_exists"),
        ("subscription outlives its own targets", _RULES, "test_subscription_survives_its_own_targets"),
        ("subscription twice; unsubscribed without one", _RULES, "test_subscription_twice"),
        ("news of others", _CLIENT, "test_subscriber_hears_of_others_targets"),
        ("targets of the server itself", _RULES, "test_subscription_lists_targets_of_the_server_itself"),
        ("no bridge; a refusal would end Go's client", _RULES, "test_subscription_where_clients_are_kept_apart"),
        ("refused targets are tried again", _LINK, "test_link_asks_again_for_a_target_that_another_client_had"),
    ),
    "sessions that the server asks for": (
        ("no clients, no such client, none with a handler", _SESSIONS, "test_open_nobody_to_ask"),
        ("by address", _SESSIONS, "test_open_to_one_client_whatever_it_registered"),
        ("several clients, the first wins", _SESSIONS, "test_open_broadcast_first_wins"),
        ("several clients, all refuse", _SESSIONS, "test_open_broadcast_all_refuse"),
        ("refused: its caller alone is told", _SERVER, "test_session_that_is_refused_reaches_its_caller_alone"),
        ("the stream never comes", _SERVER, "test_session_whose_stream_never_comes_costs_only_its_caller"),
        ("its caller gives up", _SESSIONS, "test_open_abandoned"),
        ("the client goes meanwhile", _SESSIONS, "test_open_owner_vanishes"),
        ("a late refusal", _SESSIONS, "test_positive_tags_of_a_client"),
        ("malformed", _SESSIONS, "test_malformed_session_is_answered_and_closed"),
    ),
    "sessions that the server asks for, at the client": (
        ("Run fails to register", _CLIENT, "test_run_without_a_server_ends_with_the_reason"),
        ("second Run; Run again", _CLIENT, "test_run_twice_at_once_is_refused_and_the_first_goes_on"),
        ("message without accept; tag 0", _CLIENT_RULES, "test_asked_what_cannot_be"),
        ("the register handler refuses", _STRICT, "test_our_client_refuses_their_server"),
        ("it hangs", _CLIENT, "test_register_handler_of_the_client_that_hangs_costs_its_session_alone"),
        ("the handler fails: that session ends", _SERVER, "test_handler_that_raises_ends_its_session_alone"),
        ("first message cannot be sent", _FAULTS, "test_first_message_that_cannot_be_sent_is_told_to_who_asked"),
        ("the Tunnel method fails", _FAULTS, "test_tunnel_method_that_is_refused_is_told_to_who_asked"),
        ("the stream cannot be opened in time", _CLIENT, "test_session_whose_stream_cannot_be_opened_ends_in_time"),
        ("on a connection that was let go", _REGISTER, "test_session_on_a_connection_that_the_server_let_go"),
        ("the server ends the stream", _REGISTER, "test_stream_that_the_server_does_not_know_is_a_refusal"),
        ("the client leaves meanwhile", _REGISTER, "test_register_that_is_left_answers_first"),
        ("the session breaks at once", _STRICT, "test_handler_of_our_client_fails"),
    ),
    "sessions that the client asks for": (
        ("not started", _CLIENT, "test_session_before_run_is_refused"),
        ("served by the server's handler", _CLIENT, "test_session_asked_for_by_the_client_is_served"),
        ("refused; Go's client ends", _CLIENT, "test_session_that_the_server_refuses_ends_nothing_else"),
        ("never answered; Go hangs", _CLIENT, "test_session_that_is_never_answered_ends_in_time"),
        ("an answer for an unknown tag", _FAULTS, "test_server_that_speaks_of_tags_nobody_asked_for_is_borne"),
        ("taken back by its client", _SERVER, "test_session_that_its_client_takes_back_is_let_go"),
        ("the tunnel goes down meanwhile", _CLIENT, "test_sessions_that_wait_are_told_when_the_tunnel_goes_down"),
        ("several set up at once", _CLIENT, "test_session_that_is_never_answered_ends_in_time"),
    ),
    "Tunnel at the server": (
        ("payload with the tag, close, tag 0, garbage, unknown tag", _SERVER,
         "test_tunnel_stream_that_begins_wrong_is_refused_alone"),
        ("data with the tag of another session", _FAULTS,
         "test_data_of_another_session_ends_the_session_at_the_server"),
        ("no tag at all", _SERVER, "test_tunnel_stream_that_never_says_its_tag_is_ended"),
        ("wrong connection", _SERVER, "test_tunnel_stream_on_another_connection_is_refused"),
        ("wrong connection with the right token", _IDENTITY,
         "test_word_of_a_register_stream_is_good_for_its_certificate_alone"),
        ("duplicate tunnel", _SERVER, "test_tunnel_stream_for_a_tag_that_is_taken_is_refused"),
        ("duplicate tunnel at once", _FAULTS, "test_duplicate_tunnel_for_a_session_being_set_up_gets_one_stream"),
        ("oversized message", _STREAM, "test_message_that_is_too_large_is_told_to_both_ends"),
        ("oversized message on Register", _SERVER, "test_register_with_an_oversized_message_ends_alone"),
        ("a slow handler", _CLIENT, "test_session_that_is_never_answered_ends_in_time"),
    ),
    "bridge": (
        ("bytes across, and a refusal reaches the caller; Go leaks", _SERVER,
         "test_bridge_tells_its_caller_of_a_refusal_and_carries_bytes"),
        ("not to oneself", _SESSIONS, "test_bridge_not_to_oneself_nor_unasked_for"),
        ("the target vanishes", _HANDLERS, "test_bridge_whose_target_vanishes_tells_the_caller_where_it_broke"),
        ("the caller vanishes", _HANDLERS, "test_bridge_whose_caller_vanishes_tells_the_target"),
        ("the target had finished and dies", _HANDLERS,
         "test_bridge_whose_target_dies_when_it_was_finished_ends_its_caller"),
    ),
    "copying TCP": (
        ("both ways at once, 8 MiB", _PUMP, "test_bytes_arrive_whole_both_ways_at_once"),
        ("half-close", _PUMP, "test_request_that_ends_with_the_end_of_stream_is_answered"),
        ("close or defer with others", _PUMP, "test_end_of_sending_with_a_peer_that_cannot_half_close"),
        ("an end and an abort, from either TCP end", _FAULTS,
         "test_each_kind_of_end_is_the_same_at_the_other_end"),
        ("an abort from both at once", _FAULTS, "test_session_that_both_ends_abort_at_once_is_over"),
        ("the client dies half-closed", _PUMP, "test_half_closed_session_whose_client_dies_ends_its_user"),
        ("the server dies half-closed", _PUMP, "test_half_closed_session_whose_server_dies_ends_its_service"),
        ("idle", _PUMP, "test_idle_session_is_closed_in_an_orderly_way"),
        ("idle, with bytes on their way", _PUMP, "test_idle_session_with_bytes_on_their_way_is_an_abort"),
        ("a stalled reader stops nobody else", _PUMP,
         "test_reader_that_never_reads_stops_its_sender_and_nobody_else"),
        ("and costs bounded memory", _FAULTS, "test_reader_that_never_reads_costs_bounded_memory"),
        ("a hundred sessions, no descriptor", _FAULTS, "test_hundred_sessions_leave_no_descriptor_open"),
        ("256 MiB through Go", _INTEROP, "test_large_transfer_through_their_server"),
    ),
    "dialling": (
        ("ok, and the tunnel refuses", _PUMP, "test_target_that_is_gone_resets_the_user"),
        ("the dial fails", _HANDLERS, "test_dial_a_service_that_is_down_is_a_refusal_with_its_address"),
        ("Go's dial fails, and it comes back", _INTEROP, "test_target_of_theirs_whose_service_is_down_comes_back"),
    ),
    "programs": (
        ("bad file, bad address, port in use", _PROGRAM, "test_what_cannot_be_is_one_line_and_code_2"),
        ("bad flags", _PROGRAM, "test_wrong_flags_are_code_2_with_a_sentence"),
    ),
    "killed": (
        ("client by SIGKILL", _SERVER, "test_peer_killed_by_sigkill_is_an_abort_and_its_target_goes"),
        ("server by SIGKILL", _FAULTS, "test_server_killed_by_sigkill_is_an_abort_at_its_clients"),
        ("Go target by SIGKILL", _INTEROP, "test_killed_target_of_theirs_is_an_abort_to_its_user"),
        ("Go server by SIGKILL", _INTEROP, "test_killed_server_of_theirs_is_an_abort_to_our_user"),
    ),
    "staying registered": (
        ("the server comes back", _LINK, "test_link_registers_again_after_its_server_was_gone"),
        ("GOAWAY and connection age", _LINK, "test_link_moves_before_an_old_connection_is_dropped"),
        ("where a duplicate is refused", _LINK, "test_link_moves_its_target_where_the_server_does_not_know_it_again"),
        ("a frozen server", _LINK, "test_link_with_a_frozen_server_is_ended_by_its_probe"),
        ("and its sessions", _LINK, "test_link_with_a_frozen_server_aborts_its_sessions"),
    ),
    "bytes": (
        ("every message of both versions", _GOLDEN, "test_register_message_is_these_bytes"),
        ("both versions on one path", _CODEC, "test_versions_cannot_be_told_apart"),
        ("data by hand is protobuf's", _CODEC, "test_law_reading_by_hand_is_protobufs_reading"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("where", "name"), sorted({(where, name) for cases in CASES.values() for _, where, name in cases})
)
def test_case_has_its_test(where: str, name: str) -> None:
    """The table names tests that are there."""
    assert re.search(rf"^(async )?def {name}\(", (_TESTS / where).read_text(), re.MULTILINE)
