package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sort"

	"github.com/gravitational/teleport/api/types"
	"github.com/gravitational/trace"
)

// authAPI is the auth's older HTTP API, the routes that this project reads.
func (c *cluster) authAPI(a *authInstance) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/authservers", c.route(types.KindAuthServer, func() []types.Resource {
		return resources(c.list(a, types.KindAuthServer))
	}))
	mux.HandleFunc("GET /v2/proxies", c.route(types.KindProxy, func() []types.Resource {
		return resources(c.list(a, types.KindProxy))
	}))
	mux.HandleFunc("GET /v2/tunnelconnections", c.route(types.KindTunnelConnection, c.tunnelConnections))
	return mux
}

func resources(entries []entry) []types.Resource {
	found := []types.Resource{}
	for _, stored := range entries {
		found = append(found, stored.resource)
	}
	return found
}

func (c *cluster) route(kind string, list func() []types.Resource) http.HandlerFunc {
	return func(response http.ResponseWriter, request *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.traffic.count(request.URL.Path, 0)
		if c.settings.lacks(request.URL.Path) {
			trace.WriteError(response, trace.NotFound("path not found"))
			return
		}
		connection := request.TLS
		if connection == nil || len(connection.PeerCertificates) == 0 {
			trace.WriteError(response, trace.AccessDenied("access denied: a client certificate is needed"))
			return
		}
		if err := c.settings.allow(kind, types.VerbList, types.VerbRead); err != nil {
			trace.WriteError(response, err)
			return
		}
		body := must(json.Marshal(list()))
		c.traffic.count(request.URL.Path, len(body))
		response.Header().Set("Content-Type", "application/json")
		_, _ = response.Write(body)
	}
}

func (c *cluster) tunnelConnections() []types.Resource {
	found := []types.Resource{}
	for name, each := range c.leaves {
		for _, proxy := range each.Proxies {
			made := must(types.NewTunnelConnection(proxy+"-"+name, types.TunnelConnectionSpecV2{
				ClusterName: name, ProxyName: proxy, LastHeartbeat: each.seen.UTC(), Type: types.ProxyTunnel,
			}))
			found = append(found, made)
		}
	}
	sort.Slice(found, func(first, second int) bool { return found[first].GetName() < found[second].GetName() })
	return found
}

// What /readyz responds in each state.
var readiness = []struct {
	code int
	text string
}{
	{http.StatusOK, "ok"},
	{http.StatusBadRequest, "teleport is recovering from a degraded state, check logs for details"},
	{http.StatusServiceUnavailable, "teleport is in a degraded state, check logs for details"},
	{http.StatusBadRequest, "teleport is starting and hasn't joined the cluster yet"},
}

type metric struct {
	name, labels string
	value        int
}

func diagMux(c *cluster, state func() int, metrics func() []metric) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(response http.ResponseWriter, _ *http.Request) {
		_, _ = response.Write([]byte(`{"status":"ok"}`))
	})
	mux.HandleFunc("GET /readyz", func(response http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		ready := readiness[state()]
		c.mu.Unlock()
		response.Header().Set("Content-Type", "application/json")
		response.WriteHeader(ready.code)
		_ = json.NewEncoder(response).Encode(map[string]any{"status": ready.text, "pid": os.Getpid()})
	})
	mux.HandleFunc("GET /metrics", func(response http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		response.Header().Set("Content-Type", "text/plain; version=0.0.4")
		shown := append(metrics(),
			metric{"process_state", "", state()},
			metric{"teleport_build_info", fmt.Sprintf(`{gitref="",goversion="go",version="%s"}`, c.settings.Version), 1},
		)
		last := ""
		for _, each := range shown {
			if each.name != last {
				_, _ = fmt.Fprintf(response, "# TYPE %s gauge\n", each.name)
			}
			last = each.name
			_, _ = fmt.Fprintf(response, "%s%s %d\n", each.name, each.labels, each.value)
		}
	})
	return mux
}

func byType(name string, counts map[string]int) []metric {
	var found []metric
	for _, kind := range agentKinds {
		labels := fmt.Sprintf(`{type="%s"}`, tunnelTypes[kind])
		found = append(found, metric{name, labels, counts[kind]})
	}
	return found
}

func (c *cluster) authDiag(a *authInstance) http.Handler {
	state := func() int {
		if a.Backend != backendOK {
			return 2
		}
		return 0
	}
	return diagMux(c, state, func() []metric {
		counts := map[string]int{}
		for _, each := range c.connected(a) {
			counts[each.kind]++
		}
		return byType("teleport_connected_resources", counts)
	})
}

func (c *cluster) proxyDiag(p *proxyInstance) http.Handler {
	return diagMux(c, func() int { return p.State }, func() []metric {
		counts := map[string]int{}
		for _, each := range c.agents {
			if each.stopped {
				continue
			}
			for _, proxy := range c.tunnelProxies(each) {
				if proxy == p.ID {
					counts[each.kind]++
				}
			}
		}
		for kind, missing := range p.MissingTunnels {
			counts[kind] = max(0, counts[kind]-missing)
		}
		return append(
			byType("teleport_reverse_tunnels_connected", counts),
			metric{"proxy_missing_ssh_tunnels", "", p.MissingTunnels[types.KindNode]},
		)
	})
}
