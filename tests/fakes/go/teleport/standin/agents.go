package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/gravitational/teleport/api/types"
)

var agentNamespace = uuid.MustParse("7d9a4f0e-6f0b-4c53-9a3e-6f1f3c0a5b11")

// The kinds of agents, and Teleport's system role of each.
var services = map[string]types.SystemRole{
	types.KindNode: types.RoleNode, types.KindAppServer: types.RoleApp, types.KindDatabaseServer: types.RoleDatabase,
	types.KindKubeServer: types.RoleKube, types.KindWindowsDesktopService: types.RoleWindowsDesktop,
}

// The word for a kind of tunnels in the metrics.
var tunnelTypes = map[string]types.TunnelType{
	types.KindNode: types.NodeTunnel, types.KindAppServer: types.AppTunnel, types.KindDatabaseServer: types.DatabaseTunnel,
	types.KindKubeServer: types.KubeTunnel, types.KindWindowsDesktopService: types.WindowsDesktopTunnel,
}

type agent struct {
	number             int
	id, hostname, kind string
	// The auth its connection ends at, and the proxy of its first tunnel.
	auth, proxy string
	stopped     bool
	lastSeen    time.Time
	// Heartbeats are spread over the period.
	next time.Time
	// Resources that it serves; applications and databases may be many.
	resources int
}

func newAgent(number int, kind string, resources int) *agent {
	name := fmt.Sprintf("%s-%05d", strings.ReplaceAll(kind, "_", "-"), number)
	return &agent{
		number: number, id: uuid.NewSHA1(agentNamespace, []byte(name)).String(), hostname: name, kind: kind,
		resources: max(1, resources),
	}
}

// build returns what lists and watches show of an agent.
func (a *agent) build(version string, proxies []string, expires time.Time) []entry {
	labels := map[string]string{"region": fmt.Sprintf("region-%d", a.number%4), "env": "prod"}
	entries := make([]entry, 0, a.resources)
	for count := range a.resources {
		name := a.hostname
		if a.resources > 1 {
			name = fmt.Sprintf("%s-%d", a.hostname, count)
		}
		meta := types.Metadata{Name: name, Namespace: "default", Labels: labels, Expires: &expires}
		var made types.Resource
		key := name + "/" + a.id
		switch a.kind {
		case types.KindNode:
			meta.Name, key = a.id, a.id
			made = &types.ServerV2{
				Kind: types.KindNode, Version: types.V2, Metadata: meta,
				Spec: types.ServerSpecV2{
					Hostname: a.hostname, UseTunnel: true, Version: version, ProxyIDs: proxies,
					CmdLabels: map[string]types.CommandLabelV2{
						"kernel": {Period: types.NewDuration(time.Hour), Command: []string{"uname", "-r"}, Result: "6.1.0"},
					},
				},
			}
		case types.KindAppServer:
			made = &types.AppServerV3{
				Kind: types.KindAppServer, Version: types.V3, Metadata: meta,
				Spec: types.AppServerSpecV3{
					Version: version, Hostname: a.hostname, HostID: a.id, ProxyIDs: proxies,
					App: &types.AppV3{
						Kind: types.KindApp, Version: types.V3, Metadata: types.Metadata{Name: name, Labels: labels},
						Spec: types.AppSpecV3{URI: "http://localhost:8080"},
					},
				},
			}
		case types.KindDatabaseServer:
			made = &types.DatabaseServerV3{
				Kind: types.KindDatabaseServer, Version: types.V3, Metadata: meta,
				Spec: types.DatabaseServerSpecV3{
					Version: version, Hostname: a.hostname, HostID: a.id, ProxyIDs: proxies,
					Database: &types.DatabaseV3{
						Kind: types.KindDatabase, Version: types.V3, Metadata: types.Metadata{Name: name, Labels: labels},
						Spec: types.DatabaseSpecV3{Protocol: "postgres", URI: "localhost:5432"},
					},
				},
			}
		case types.KindKubeServer:
			made = &types.KubernetesServerV3{
				Kind: types.KindKubeServer, Version: types.V3, Metadata: meta,
				Spec: types.KubernetesServerSpecV3{
					Version: version, Hostname: a.hostname, HostID: a.id, ProxyIDs: proxies,
					Cluster: &types.KubernetesClusterV3{
						Kind: types.KindKubernetesCluster, Version: types.V3,
						Metadata: types.Metadata{Name: name, Labels: labels},
					},
				},
			}
		case types.KindWindowsDesktopService:
			meta.Name, key = a.id, a.id
			made = &types.WindowsDesktopServiceV3{
				ResourceHeader: types.ResourceHeader{Kind: types.KindWindowsDesktopService, Version: types.V3, Metadata: meta},
				Spec:           types.WindowsDesktopServiceSpecV3{TeleportVersion: version, Hostname: a.hostname, ProxyIDs: proxies},
			}
		}
		entries = append(entries, entry{kind: a.kind, key: key, hostID: a.id, expires: expires, resource: made})
	}
	return entries
}

// lies returns resources that no honest cluster has, after the real nodes.
func lies(names []string, version string) []entry {
	var entries []entry
	add := func(name string, expires time.Time, labels map[string]string, hostname string) {
		entries = append(entries, entry{
			kind: types.KindNode, key: fmt.Sprintf("~%03d", len(entries)), expires: expires,
			resource: &types.ServerV2{
				Kind: types.KindNode, Version: types.V2,
				Metadata: types.Metadata{Name: name, Namespace: "default", Labels: labels, Expires: &expires},
				Spec:     types.ServerSpecV2{Hostname: hostname, UseTunnel: true, Version: version},
			},
		})
	}
	soon := time.Now().Add(10 * time.Minute)
	for _, lie := range names {
		switch lie {
		case "far-expiry":
			add("lie-far", time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), nil, "far")
		case "negative-expiry":
			add("lie-negative", time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), nil, "negative")
		case "duplicate-names":
			add("lie-twin", soon, nil, "twin-1")
			add("lie-twin", soon, nil, "twin-2")
		case "long-labels":
			long := strings.Repeat("x", 300)
			add("lie-long", soon, map[string]string{long: long}, long)
		case "markup":
			script := "<script>alert('label')</script>"
			add("lie-markup", soon, map[string]string{"team": script}, script)
		}
	}
	return entries
}

// tunnelProxies returns the proxies that an agent has tunnels to. Its heartbeats go through one: without any there are none.
func (c *cluster) tunnelProxies(a *agent) []string {
	var running []string
	for _, p := range c.proxies {
		if p.Running {
			running = append(running, p.ID)
		}
	}
	if !c.settings.Peering {
		return running
	}
	if slices.Contains(running, a.proxy) {
		return []string{a.proxy}
	}
	if len(running) == 0 || !c.settings.Reconnect {
		return nil
	}
	a.proxy = running[a.number%len(running)]
	return []string{a.proxy}
}
