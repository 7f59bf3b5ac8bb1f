"""Steps up to the first request: addresses, connections, TLS, certificates and roles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import dns.asyncresolver

from fleet.clusters.address_entries import parse_address
from fleet.clusters.addresses import DNS_TIMEOUT_SECONDS, resolve
from fleet.clusters.connection_test.certificates import (
    CertificateFacts,
    format_day,
    read_pem_certificates,
)
from fleet.clusters.connection_test.findings import ServerProblem, StepFinding, count, skip_step, summarize
from fleet.clusters.connection_test.server_checks import check_plain_server, check_server, connect_to
from fleet.clusters.name_lookup import LookupProblemError, check_host
from fleet.clusters.test_report import StepVerdict
from fleet.transport.tls import IdentityError, TLSError, TLSFiles, check_files
from fleet.vocabulary.clusters import AddressKind

#: Addresses that a test connects to.
_MOST_SERVERS = 10
_LOOPBACK_HOSTS = ("127.", "localhost", "::1")


@dataclass(slots=True)
class ServerStepsState:
    """What the steps have found so far."""

    #: Addresses to try, host:port; after each step those that passed it.
    addresses: Sequence[str] = ()
    #: What the addresses are the addresses of.
    noun: str = "auth"
    #: Certificates of the servers that passed TLS.
    certificates: dict[str, CertificateFacts] = field(default_factory=dict)


async def resolve_addresses(
    state: ServerStepsState,
    kind: AddressKind,
    entries: Sequence[str],
    resolver: dns.asyncresolver.Resolver | None = None,
) -> StepFinding:
    """Resolve the entries; static host names too, which other steps would only fail to connect to."""
    if not entries:
        return StepFinding(
            StepVerdict.FAILED,
            "This cluster has no addresses.",
            f"Enter the address of at least one {state.noun}: host:port.",
        )
    resolution = await resolve(kind, entries, resolver=resolver)
    problems = [(problem.text, problem.remedy) for problem in resolution.problem_details]
    addresses = list(resolution.addresses)
    if kind is AddressKind.STATIC:
        for address, error in await asyncio.gather(*map(_check_static_address, resolution.addresses)):
            if error is not None:
                addresses.remove(address)
                problems.append((str(error), error.remedy))
    state.addresses = addresses[:_MOST_SERVERS]
    texts = [text for text, _ in problems]
    if addresses:
        texts.append(f"{count(len(addresses), 'address', 'addresses')}: {_list_addresses(addresses)}.")
    elif not problems:
        texts.append("There are no addresses in the entries of this cluster.")
        problems.append(("", f"Add the address of at least one {state.noun} to the file."))
    verdict = StepVerdict.FAILED if not addresses else StepVerdict.WARNING if problems else StepVerdict.OK
    return StepFinding(verdict, " ".join(texts), " ".join(dict.fromkeys(remedy for _, remedy in problems)))


async def connect_to_servers(state: ServerStepsState) -> StepFinding:
    """Open a TCP connection to each address."""
    if not state.addresses:
        return skip_step("No address to connect to.")
    problems = list(
        zip(
            state.addresses,
            await asyncio.gather(*(connect_to(address, state.noun) for address in state.addresses)),
            strict=True,
        )
    )
    state.addresses = [address for address, problem in problems if problem is None]
    return summarize(
        problems,
        f"{_list_addresses(state.addresses)} {'accepts' if len(state.addresses) == 1 else 'accept'} connections."
        if state.addresses
        else "",
    )


async def check_tls(state: ServerStepsState, tls: TLSFiles | None, now: float) -> StepFinding:
    """Check Refloat's own files, then make a TLS connection to each address."""
    own_problem = None if tls is None else _check_own_files(tls, now)
    if own_problem is not None:
        # Nothing is sent without TLS instead.
        state.addresses = []
        return StepFinding(own_problem.verdict, f"{own_problem.text}.", own_problem.remedy)
    if not state.addresses:
        return skip_step("No connection on which to check TLS.")
    if tls is None or not tls.enabled:
        return await _check_without_tls(state)
    results = await asyncio.gather(*(_check_server(address, tls, state, now) for address in state.addresses))
    problems = list(zip(state.addresses, results, strict=True))
    state.addresses = [
        address for address, problem in problems if problem is None or problem.verdict is StepVerdict.WARNING
    ]
    return summarize(
        problems,
        f"The certificates are valid for {tls.for_role('auth').server_name}: {_describe_certificates(state)}.",
    )


def check_identity(state: ServerStepsState, tls: TLSFiles | None) -> StepFinding:
    """Say who the servers are, and what Refloat's own certificate allows."""
    if not state.addresses:
        return skip_step("No TLS connection whose certificates could be checked.")
    if tls is None or not tls.enabled:
        return skip_step(
            "Without TLS nobody is authenticated. Auths and proxies accept changes from Refloat only on loopback."
        )
    servers = [
        f"{certificate.common_name or address} (role {certificate.role or 'none'})"
        for address, certificate in state.certificates.items()
    ]
    text = f"Servers: {', '.join(dict.fromkeys(servers))}."
    own_certificates = [] if tls.certificate is None else read_pem_certificates(tls.certificate.read_bytes())
    if not own_certificates:
        return StepFinding(
            StepVerdict.WARNING,
            f"{text} Refloat has no client certificate: it can read, but auths and proxies refuse its changes.",
            "Issue a certificate with the role console for Refloat, and set it here.",
        )
    own_certificate = own_certificates[0]
    own_role = f"the role {own_certificate.role}" if own_certificate.role else "no role"
    if own_certificate.role != "console":
        return StepFinding(
            StepVerdict.WARNING,
            f"{text} Refloat's certificate ({own_certificate.common_name}) has {own_role}: "
            "Refloat can read, but auths and proxies refuse its changes.",
            "Issue a certificate with the role console for Refloat, and set it here.",
        )
    return StepFinding(
        StepVerdict.OK, f"{text} Refloat: {own_certificate.common_name} (role {own_certificate.role})."
    )


def _check_own_files(tls: TLSFiles, now: float) -> ServerProblem | None:
    if tls.problem:
        return ServerProblem(_to_sentence_start(tls.problem), "Correct the TLS files of this cluster.")
    if (tls.certificate is None) != (tls.key is None):
        part = "its key" if tls.key is None else "its certificate"
        return ServerProblem(
            f"Refloat's client certificate is incomplete: {part} is missing", "Set both, or neither."
        )
    try:
        check_files(tls)
    except IdentityError as error:
        remedy = f"{error.remedy or 'Use the whole output of tctl auth sign'}."
        return ServerProblem(_to_sentence_start(error.problem), remedy)
    except TLSError as error:
        sentence = str(error)
        return ServerProblem(_to_sentence_start(sentence), _remedy_of_file_error(sentence))
    for owner, path, remedy in (
        (
            "Refloat's certificate",
            tls.certificate,
            "Issue Refloat's certificate again, and set the new one here.",
        ),
        ("The CA of this cluster", tls.authority, "Renew the CA, and set the new CA here."),
    ):
        certificates = [] if path is None else read_pem_certificates(path.read_bytes())
        # A CA file may keep old CAs beside the new one; of a chain the first is Refloat's own.
        last = max((certificate.valid_until for certificate in certificates), default=None)
        if owner.startswith("Refloat") and certificates:
            last = certificates[0].valid_until
        if last is not None and last <= now:
            return ServerProblem(f"{owner} expired on {format_day(last)}", remedy)
        if owner.startswith("Refloat") and certificates and certificates[0].valid_from > now:
            return ServerProblem(
                f"{owner} is not valid before {format_day(certificates[0].valid_from)}",
                "Check the clock of the machine where workers run, or issue the certificate again.",
            )
    return None


def _to_sentence_start(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _remedy_of_file_error(sentence: str) -> str:
    if "cannot read" in sentence:
        return (
            "Check the path and its permissions on each machine where workers run, "
            "for the user that runs the workers."
        )
    if "mismatch" in sentence:
        return "Set the key that belongs to this certificate."
    return "Set a file in PEM format: it begins with -----BEGIN."


async def _check_static_address(address: str) -> tuple[str, LookupProblemError | None]:
    try:
        await check_host(parse_address(address), timeout_seconds=DNS_TIMEOUT_SECONDS)
    except LookupProblemError as error:
        return address, error
    return address, None


async def _check_server(
    address: str, tls: TLSFiles, state: ServerStepsState, now: float
) -> ServerProblem | None:
    problem, certificate = await check_server(address, tls, "auth", now)
    if certificate is not None and (problem is None or problem.verdict is StepVerdict.WARNING):
        state.certificates[address] = certificate
    return problem


async def _check_without_tls(state: ServerStepsState) -> StepFinding:
    results = await asyncio.gather(*(check_plain_server(address, "auth") for address in state.addresses))
    problems = list(zip(state.addresses, results, strict=True))
    state.addresses = [address for address, problem in problems if problem is None]
    is_local = all(address.strip("[").startswith(_LOOPBACK_HOSTS) for address in state.addresses)
    finding = summarize(problems, "TLS is off, and the servers accept gRPC without it.")
    if finding.verdict is StepVerdict.OK and not is_local:
        return StepFinding(
            StepVerdict.WARNING,
            f"{finding.text} Everybody on the network can read and change what Refloat and the auths send.",
            "Turn TLS on at auths and proxies, and set the CA and a certificate here.",
        )
    return finding


def _describe_certificates(state: ServerStepsState) -> str:
    return "; ".join(
        f"{certificate.common_name or address} until {format_day(certificate.valid_until)}"
        for address, certificate in list(state.certificates.items())[:3]
    )


def _list_addresses(addresses: Sequence[str]) -> str:
    rest_count = len(addresses) - 5
    return ", ".join(addresses[:5]) + (f" and {rest_count} more" if rest_count > 0 else "")
