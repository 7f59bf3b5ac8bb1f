"""Every case that the protocol's own tests, its design and its known defects name, and the test that covers
it here. The cases are those of openconfig/grpctunnel's tests and what those leave out. Where the Go code
is wrong, the text describes what it does. Every name here must be that of a test.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[3]
_TRANSPORT, _PROTOCOL = "fleet/transport/tunnel", "fleet/protocol/tunnel"
_STREAM, _CODEC = f"{_TRANSPORT}/test_stream.py", f"{_TRANSPORT}/test_codec.py"
_SERVER, _CLIENT = f"{_TRANSPORT}/test_server.py", f"{_TRANSPORT}/test_client.py"
_PUMP, _LINK, _FAULTS = (
    f"{_TRANSPORT}/test_pump.py",
    f"{_TRANSPORT}/test_link.py",
    f"{_TRANSPORT}/test_faults.py",
)
_STRICT, _HANDLERS = f"{_TRANSPORT}/test_strict_peer.py", f"{_TRANSPORT}/test_handlers.py"
_IDENTITY, _GOLDEN = f"{_TRANSPORT}/test_identity.py", f"{_TRANSPORT}/test_golden_bytes.py"
_RULES, _SESSIONS = f"{_PROTOCOL}/test_server_state.py", f"{_PROTOCOL}/test_server_state_sessions.py"
_CLIENT_RULES, _TAGS = f"{_PROTOCOL}/test_client_state.py", f"{_PROTOCOL}/test_messages.py"
_REGISTER = f"{_TRANSPORT}/test_register_stream.py"
_PROGRAM, _INTEROP = "fleet/cli/test_tunnel.py", "flow/test_tunnel_interop.py"

CASES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "stream": (
        ("reads with buffers of 1 to 100 bytes, remainder kept", _STREAM,
         "test_read_of_any_size_keeps_the_rest"),
        ("close is the end", _STREAM, "test_write_eof_ends_one_direction"),
        ("read after a local close; a blocked read wakes", _STREAM, "test_read_wakes_on_a_local_close"),
        ("a broken transport is an error", _STREAM, "test_abort_reaches_the_other_end"),
        ("write after close", _STREAM, "test_write_eof_ends_one_direction"),
        ("write when the other end has closed", _STREAM, "test_write_after_the_server_closed_is_refused"),
        ("close has close: true and no data", _CODEC, "test_close_has_no_data"),
    ),
    "connection map and tags": (
        ("tags count away from zero and never repeat", _TAGS, "test_tags_count_away_from_zero"),
        ("tags run out", _TAGS, "test_tags_end_at_int32"),
        ("unknown and negative tags", _SESSIONS, "test_attach_without_a_session_is_refused"),
        ("a tag twice, or of another connection", _SESSIONS,
         "test_tag_is_valid_for_one_stream_of_one_connection"),
        ("nothing is left in it", _FAULTS, "test_hundred_clients_leave_nothing_behind"),
    ),
    "constructors: a handler is one function, so neither callback can be missing": (
        ("a handler by a function alone", _HANDLERS, "test_function_session_serves_with_its_function"),
        ("a client without one refuses; Go says nothing", _CLIENT_RULES,
         "test_requested_session_without_a_handler_is_refused"),
    ),
    "capabilities (0.1)": (
        ("neither end has a handler", _RULES, "test_capabilities_without_any_handler_end_the_stream"),
        ("neither end, the client's side", _CLIENT_RULES,
         "test_capabilities_without_any_handler_end_the_stream"),
        ("only one end has", _RULES, "test_capabilities_with_one_handler_are_enough"),
        ("they must come first", _RULES, "test_capabilities_must_come_first"),
        ("from the server, too", _CLIENT_RULES, "test_capabilities_must_come_first"),
        ("a session to an end without a handler; Go panics", _CLIENT_RULES, "test_open_server_without_handler"),
    ),
    "Register at the server": (
        ("second Register of a connection", _SERVER, "test_register_twice_on_one_connection_is_refused"),
        ("invalid bytes are received", _SERVER, "test_register_with_invalid_bytes_is_refused"),
        ("the client disconnects, for any reason", _RULES, "test_targets_are_removed_with_their_client"),
        ("the client does not read", _SERVER, "test_client_that_reads_nothing_is_ended"),
        ("another version", _SERVER, "test_register_of_another_version_is_refused_by_name"),
    ),
    "targets and subscriptions (0.2)": (
        ("added, removed, and responses", _RULES, "test_target_is_added_and_removed"),
        ("duplicate target of another client", _SERVER,
         "test_target_of_another_client_is_refused"),
        ("duplicate of the same client after a reconnect", _SERVER,
         "test_reconnected_client_displaces_its_target"),
        ("of the same certificate", _IDENTITY,
         "test_reconnect_with_the_same_certificate_displaces_the_stale_target"),
        ("of another certificate", _IDENTITY, "test_another_certificate_does_not_displace_a_target"),
        ("targets that a certificate may claim", _IDENTITY, "test_certificate_binds_the_targets_it_names"),
        ("responses reach their callers, in order", _CLIENT, "test_responses_reach_their_callers_in_order"),
        ("subscription before any target exists", _RULES, "test_subscription_reports_later_targets"),
        ("subscription outlives its own targets", _RULES, "test_subscription_survives_its_own_targets"),
        ("subscription twice; unsubscribed without one", _RULES,
         "test_second_subscription_to_a_type_is_refused"),
        ("changes of others", _CLIENT, "test_subscriber_gets_changes_of_others_targets"),
        ("targets of the server itself", _RULES, "test_subscription_lists_the_servers_targets"),
        ("no bridge; a refusal would end Go's client", _RULES,
         "test_subscription_without_bridge_shows_no_clients"),
        ("refused targets are retried", _LINK,
         "test_link_retries_a_target_of_another_client"),
    ),
    "sessions requested by the server": (
        ("no clients, no such client, none with a handler", _SESSIONS,
         "test_open_without_a_usable_client_is_refused"),
        ("by address", _SESSIONS, "test_open_to_a_client_needs_no_registered_target"),
        ("several clients, the first stream is used", _SESSIONS, "test_open_broadcast_first_wins"),
        ("several clients, all refuse", _SESSIONS, "test_open_broadcast_all_refuse"),
        ("refused: only its caller gets the error", _SERVER,
         "test_refused_session_fails_only_its_caller"),
        ("the stream never opens", _SERVER, "test_session_without_a_stream_fails_only_its_caller"),
        ("its caller abandons it", _SESSIONS, "test_abandoned_open_refuses_its_stream"),
        ("the client disconnects meanwhile", _SESSIONS, "test_open_fails_when_the_owner_disconnects"),
        ("a late refusal", _SESSIONS, "test_sessions_with_unknown_positive_tags_are_ignored"),
        ("malformed", _SESSIONS, "test_malformed_session_is_answered_and_closed"),
    ),
    "sessions requested by the server, at the client": (
        ("Run fails to register", _CLIENT, "test_run_without_a_server_ends_with_the_reason"),
        ("second Run; Run again", _CLIENT, "test_run_twice_at_once_is_refused_and_the_first_goes_on"),
        ("message without accept; tag 0", _CLIENT_RULES, "test_invalid_session_request_is_refused"),
        ("the register handler refuses", _STRICT, "test_our_client_refuses_a_session"),
        ("it hangs", _CLIENT, "test_hanging_register_handler_affects_only_its_session"),
        ("the handler fails: that session ends", _SERVER, "test_failing_handler_ends_only_its_session"),
        ("first message cannot be sent", _FAULTS,
         "test_unsent_first_message_is_reported_to_the_requester"),
        ("the Tunnel method fails", _FAULTS, "test_refused_tunnel_method_is_reported_to_the_requester"),
        ("the stream cannot be opened in time", _CLIENT,
         "test_session_whose_stream_cannot_be_opened_ends_in_time"),
        ("on a dropped connection", _REGISTER, "test_session_on_a_dropped_connection_is_refused"),
        ("the server ends the stream", _REGISTER, "test_stream_that_the_server_refuses_fails_the_session"),
        ("the client leaves meanwhile", _REGISTER, "test_leaving_register_responds_first"),
        ("the session breaks at once", _STRICT, "test_failing_handler_of_our_client_ends_its_session"),
    ),
    "sessions requested by the client": (
        ("not started", _CLIENT, "test_session_before_run_is_refused"),
        ("served by the server's handler", _CLIENT, "test_session_requested_by_the_client_is_served"),
        ("refused; Go's client ends", _CLIENT, "test_session_that_the_server_refuses_ends_nothing_else"),
        ("no response; Go hangs", _CLIENT, "test_session_that_is_never_answered_ends_in_time"),
        ("a response for an unknown tag", _FAULTS,
         "test_messages_for_unknown_tags_are_ignored"),
        ("cancelled by its client", _SERVER, "test_session_that_its_client_cancels_is_discarded"),
        ("the tunnel ends meanwhile", _CLIENT,
         "test_pending_sessions_fail_when_the_tunnel_ends"),
        ("several set up at once", _CLIENT, "test_session_that_is_never_answered_ends_in_time"),
    ),
    "Tunnel at the server": (
        ("payload with the tag, close, tag 0, garbage, unknown tag", _SERVER,
         "test_tunnel_stream_with_an_invalid_start_is_refused"),
        ("data with the tag of another session", _FAULTS,
         "test_data_of_another_session_ends_the_session_at_the_server"),
        ("no tag at all", _SERVER, "test_tunnel_stream_without_a_tag_times_out"),
        ("wrong connection", _SERVER, "test_tunnel_stream_on_another_connection_is_refused"),
        ("wrong connection with the right token", _IDENTITY,
         "test_token_is_valid_for_its_certificate_only"),
        ("duplicate tunnel", _SERVER, "test_second_tunnel_stream_of_a_session_is_refused"),
        ("duplicate tunnel at once", _FAULTS,
         "test_duplicate_stream_of_a_pending_session_is_refused"),
        ("oversized message", _STREAM, "test_oversized_message_fails_both_ends"),
        ("oversized message on Register", _SERVER, "test_register_with_an_oversized_message_ends_alone"),
        ("a slow handler", _CLIENT, "test_session_that_is_never_answered_ends_in_time"),
    ),
    "bridge": (
        ("bytes across, and a refusal reaches the caller; Go leaks", _SERVER,
         "test_bridge_forwards_bytes_and_refusals"),
        ("not to the own target", _SESSIONS, "test_bridge_is_refused_for_own_targets_or_if_disabled"),
        ("the target vanishes", _HANDLERS,
         "test_bridge_whose_target_vanishes_aborts_the_caller"),
        ("the caller vanishes", _HANDLERS, "test_bridge_whose_caller_vanishes_aborts_the_target"),
        ("the finished target dies", _HANDLERS,
         "test_bridge_whose_finished_target_dies_aborts_the_caller"),
    ),
    "copying TCP": (
        ("both ways at once, 8 MiB", _PUMP, "test_bytes_arrive_in_both_directions_at_once"),
        ("half-close", _PUMP, "test_request_that_ends_with_the_end_of_stream_is_answered"),
        ("close or defer with others", _PUMP, "test_end_of_sending_with_a_peer_that_cannot_half_close"),
        ("an end and an abort, from either TCP end", _FAULTS,
         "test_close_and_reset_reach_the_other_end"),
        ("an abort from both at once", _FAULTS, "test_session_that_both_ends_abort_at_once_is_over"),
        ("the client dies half-closed", _PUMP, "test_half_closed_session_whose_client_dies_ends_its_user"),
        ("the server dies half-closed", _PUMP, "test_half_closed_session_whose_server_dies_ends_its_service"),
        ("idle", _PUMP, "test_idle_session_is_closed_in_an_orderly_way"),
        ("idle, with bytes in transit", _PUMP, "test_idle_session_with_bytes_on_their_way_is_an_abort"),
        ("a stalled reader stops only its sender", _PUMP,
         "test_reader_that_never_reads_stops_only_its_sender"),
        ("and costs bounded memory", _FAULTS, "test_reader_that_never_reads_costs_bounded_memory"),
        ("a hundred sessions, no descriptor", _FAULTS, "test_hundred_sessions_leave_no_descriptor_open"),
        ("256 MiB through Go", _INTEROP, "test_large_transfer_through_go_server"),
    ),
    "dialling": (
        ("ok, and the tunnel refuses", _PUMP, "test_target_that_is_gone_resets_the_user"),
        ("the dial fails", _HANDLERS, "test_dial_a_service_that_is_down_is_a_refusal_with_its_address"),
        ("Go's dial fails, and the client reconnects", _INTEROP,
         "test_go_target_with_unreachable_service_registers_again"),
    ),
    "programs": (
        ("bad file, bad address, port in use", _PROGRAM, "test_errors_are_one_line_with_exit_code_2"),
        ("bad flags", _PROGRAM, "test_invalid_flags_exit_with_code_2"),
    ),
    "killed": (
        ("client by SIGKILL", _SERVER, "test_client_killed_by_sigkill_is_an_abort"),
        ("server by SIGKILL", _FAULTS, "test_server_killed_by_sigkill_is_an_abort_at_its_clients"),
        ("Go target by SIGKILL", _INTEROP, "test_killed_go_target_aborts_its_user"),
        ("Go server by SIGKILL", _INTEROP, "test_killed_go_server_aborts_refloat_user"),
    ),
    "staying registered": (
        ("the server comes back", _LINK, "test_link_registers_again_after_its_server_was_gone"),
        ("GOAWAY and connection age", _LINK, "test_link_moves_before_an_old_connection_is_dropped"),
        ("where a duplicate is refused", _LINK,
         "test_link_moves_its_target_if_the_server_refuses_duplicates"),
        ("a frozen server", _LINK, "test_link_with_a_frozen_server_is_ended_by_its_probe"),
        ("and its sessions", _LINK, "test_link_with_a_frozen_server_aborts_its_sessions"),
    ),
    "bytes": (
        ("every message of both versions", _GOLDEN, "test_register_message_has_these_bytes"),
        ("both versions are ambiguous", _CODEC, "test_versions_cannot_be_distinguished"),
        ("manual decoding matches protobuf", _CODEC, "test_law_manual_decoding_matches_protobuf"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "name"), sorted({(path, name) for cases in CASES.values() for _, path, name in cases})
)
def test_case_has_its_test(path: str, name: str) -> None:
    """Every test that the table names exists."""
    assert re.search(rf"^(async )?def {name}\(", (_TESTS / path).read_text(), re.MULTILINE)
