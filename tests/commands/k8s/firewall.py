"""NetworkPolicies as nft rules, so that what they deny can be tried without a cluster."""

from collections.abc import Iterable

from tests.commands.k8s.manifests import Object, Pod, of_kind
from tests.commands.k8s.rules_service import matches

ALWAYS = '  {way} "lo" accept\n  ct state established,related accept\n'


def rules_for(objects: list[Object], pod: Pod, peers: Iterable[tuple[Pod, str]]) -> str:
    """nft rules of a pod: what the policies let in from and out to each peer (a pod and its address), and no more."""
    people = list(peers)
    come = "".join(_accept("saddr", address, _ports(objects, pod, peer, "ingress", "from")) for peer, address in people)
    go = "".join(_accept("daddr", address, _ports(objects, pod, peer, "egress", "to")) for peer, address in people)
    return (
        "flush ruleset\ntable inet pods {\n"
        f" chain in {{\n  type filter hook input priority 0; policy drop;\n{ALWAYS.format(way='iif')}{come} }}\n"
        f" chain out {{\n  type filter hook output priority 0; policy drop;\n{ALWAYS.format(way='oif')}{go} }}\n}}\n"
    )


def _ports(objects: list[Object], owner: Pod, peer: Pod, direction: str, side: str) -> list[set[int]]:
    """One entry per policy rule that names the peer: its ports, empty for all."""
    found = []
    for each in of_kind(objects, "NetworkPolicy"):
        if matches(each["spec"]["podSelector"], owner.labels):
            for rule in each["spec"].get(direction, []):
                named = [one for one in rule[side] if "podSelector" in one and "namespaceSelector" not in one]
                if any(matches(one["podSelector"], peer.labels) for one in named):
                    found.append({port["port"] for port in rule.get("ports", [])})
    return found


def _accept(key: str, address: str, rules: list[set[int]]) -> str:
    text = ""
    for ports in rules:
        only = f" tcp dport {{ {', '.join(map(str, sorted(ports)))} }}" if ports else ""
        text += f"  ip {key} {address}{only} accept\n"
    return text
