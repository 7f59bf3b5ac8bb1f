package main

import (
	"fmt"
	"slices"

	"github.com/gravitational/teleport/api/types"
	"github.com/gravitational/trace"
)

// What a test sets of the whole cluster.
type settings struct {
	Version string `json:"version"`
	// Verbs of the role by kind; null: all verbs of all kinds.
	Rules map[string][]string `json:"rules"`
	// Kinds whose resources the role's labels do not match: lists of them are empty, without an error.
	HiddenKinds []string `json:"hidden_kinds"`
	// The identity has the builtin role Admin, which no user or bot can have.
	BuiltinAdmin bool `json:"builtin_admin"`
	// Admin actions need MFA, which a program cannot do.
	MFARequired bool `json:"mfa_required"`
	Enterprise  bool `json:"enterprise"`
	Cloud       bool `json:"cloud"`
	// Reads that still return the previous networking config after a write, as from the cache of an auth.
	StaleReads int `json:"stale_reads"`
	// Full method names and HTTP paths that this version does not have.
	Missing []string `json:"missing"`
	// Every list begins again after its last page.
	EndlessPages bool `json:"endless_pages"`
	// Instances send heartbeats of their own (Teleport can be told not to).
	InstanceHeartbeats bool `json:"instance_heartbeats"`
	// Proxy peering with one connection per agent; false: agent mesh.
	Peering bool `json:"peering"`
	// Agents of a stopped proxy find another one.
	Reconnect bool `json:"reconnect"`
	// GetServiceConfig tells clients to leave an unhealthy auth, instead of to stay.
	ReconnectMode bool `json:"reconnect_mode"`
	// Nonsense among the nodes: far-expiry, negative-expiry, duplicate-names, long-labels, markup.
	Lies []string `json:"lies"`
	// Seconds until an agent's, an auth's or a proxy's resource expires without a heartbeat; one comes twice as often.
	AgentTTL    float64 `json:"agent_ttl_seconds"`
	InstanceTTL float64 `json:"instance_ttl_seconds"`
}

func defaultSettings() settings {
	return settings{
		Version: "18.1.0", Enterprise: true, InstanceHeartbeats: true, Reconnect: true, AgentTTL: 600, InstanceTTL: 600,
	}
}

// THE CHECKS BELOW ARE OUR READING of Teleport's documentation and public discussions, not Teleport's code: they show that
// our client understands such refusals, not that a Teleport cluster refuses in these cases or in these words.

// allow checks the role's verbs on a kind.
func (s settings) allow(kind string, verbs ...string) error {
	if s.Rules == nil || s.BuiltinAdmin {
		return nil
	}
	for _, verb := range verbs {
		allowed := s.Rules[kind]
		if kind == types.KindClusterNetworkingConfig {
			// Older roles have one kind for all of the cluster's configuration.
			allowed = slices.Concat(allowed, s.Rules[types.KindClusterConfig])
		}
		if !slices.Contains(allowed, verb) && !slices.Contains(allowed, types.Wildcard) {
			return trace.AccessDenied("access denied to perform action %q on %q", verb, kind)
		}
	}
	return nil
}

// allowBuiltinAdmin is for the inventory of control streams.
func (s settings) allowBuiltinAdmin() error {
	if !s.BuiltinAdmin {
		return trace.AccessDenied("this request can be only executed by the builtin Admin role")
	}
	return nil
}

func (s settings) hides(kind string) bool { return slices.Contains(s.HiddenKinds, kind) }

func (s settings) lacks(name string) bool { return slices.Contains(s.Missing, name) }

var lieNames = []string{"far-expiry", "negative-expiry", "duplicate-names", "long-labels", "markup"}

func (s settings) check() error {
	for _, lie := range s.Lies {
		if !slices.Contains(lieNames, lie) {
			return fmt.Errorf("no such lie: %q", lie)
		}
	}
	if s.AgentTTL <= 0 || s.InstanceTTL <= 0 {
		return fmt.Errorf("a TTL must be above 0")
	}
	return nil
}
