package main

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gravitational/teleport/api/types"
	"google.golang.org/grpc/stats"
)

// traffic counts calls and bytes sent by method, as they are on the wire.
type traffic struct {
	mu    sync.Mutex
	calls map[string]int
	bytes map[string]int
}

type methodKey struct{}

func (t *traffic) count(method string, bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if bytes == 0 {
		t.calls[method]++
	}
	t.bytes[method] += bytes
}

func (t *traffic) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	t.count(info.FullMethodName, 0)
	return context.WithValue(ctx, methodKey{}, info.FullMethodName)
}

func (t *traffic) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if sent, isOut := event.(*stats.OutPayload); isOut && sent.WireLength > 0 {
		t.count(ctx.Value(methodKey{}).(string), sent.WireLength)
	}
}

func (t *traffic) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (t *traffic) HandleConn(context.Context, stats.ConnStats)                       {}

type agentsRequest struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	// Resources of each agent.
	Resources int `json:"resources"`
}

type agentChange struct {
	Stopped bool `json:"stopped"`
}

type watchesRequest struct {
	// Ends the watches of an auth; "*": of all.
	Drop    string `json:"drop"`
	Stalled bool   `json:"stalled"`
}

type identityRequest struct {
	User string  `json:"user"`
	TTL  float64 `json:"ttl_seconds"`
}

// networkingChange is a write of the networking config past the API, such as by an auth that reads its config file.
type networkingChange struct {
	Origin            string `json:"origin"`
	KeepAliveCountMax int64  `json:"keep_alive_count_max"`
	// Fields of a newer version as they are on the wire, appended to the spec.
	Unknown []byte `json:"unknown"`
}

// read decodes a body over `value`, whose other fields stay; unknown fields are errors.
func read(request *http.Request, value any) error {
	decoder := json.NewDecoder(request.Body)
	decoder.DisallowUnknownFields()
	return decoder.Decode(value)
}

// control is the HTTP API by which a test changes the state: JSON in, the whole state out.
func (c *cluster) control() http.Handler {
	mux := http.NewServeMux()
	on := func(pattern string, change func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(response http.ResponseWriter, request *http.Request) {
			c.mu.Lock()
			defer c.mu.Unlock()
			result, err := change(request)
			if err != nil {
				http.Error(response, err.Error(), http.StatusBadRequest)
				return
			}
			_ = json.NewEncoder(response).Encode(result)
		})
	}
	on("GET /state", func(*http.Request) (any, error) { return c.state(), nil })
	on("POST /settings", func(request *http.Request) (any, error) {
		changed := c.settings
		err := read(request, &changed)
		if err == nil {
			err = changed.check()
		}
		if err == nil && changed.InstanceTTL != c.settings.InstanceTTL {
			// The next heartbeats come at once: those before had the old TTL.
			for _, a := range c.auths {
				a.next = time.Time{}
			}
			for _, p := range c.proxies {
				p.next = time.Time{}
			}
		}
		if err == nil {
			c.settings = changed
		}
		return c.state(), err
	})
	on("POST /agents", func(request *http.Request) (any, error) {
		wanted := agentsRequest{Kind: types.KindNode, Count: 1, Resources: 1}
		err := read(request, &wanted)
		if err == nil && slices.Contains(agentKinds, wanted.Kind) {
			c.addAgents(wanted.Kind, wanted.Count, wanted.Resources)
		}
		return c.state(), err
	})
	on("POST /agents/{id}", func(request *http.Request) (any, error) {
		var change agentChange
		err := read(request, &change)
		if found := c.byID[request.PathValue("id")]; found != nil && err == nil {
			found.stopped = change.Stopped
		}
		return c.state(), err
	})
	on("POST /auths/{id}", c.changeAuth)
	on("POST /proxies/{id}", c.changeProxy)
	on("POST /leaves/{name}", func(request *http.Request) (any, error) {
		changed := &leaf{}
		if found := c.leaves[request.PathValue("name")]; found != nil {
			*changed = *found
		}
		err := read(request, changed)
		if err == nil {
			c.leaves[request.PathValue("name")] = changed
		}
		return c.state(), err
	})
	on("POST /watches", func(request *http.Request) (any, error) {
		wanted := watchesRequest{Stalled: c.watches.stalled}
		err := read(request, &wanted)
		if wanted.Drop == "*" {
			c.watches.drop("")
		} else if wanted.Drop != "" {
			c.watches.drop(wanted.Drop)
		}
		c.watches.stalled = wanted.Stalled
		return c.state(), err
	})
	on("POST /networking", func(request *http.Request) (any, error) {
		change := networkingChange{
			Origin: types.OriginDynamic, KeepAliveCountMax: c.networking.Spec.KeepAliveCountMax,
		}
		if err := read(request, &change); err != nil {
			return nil, err
		}
		c.networking = c.cloneNetworking()
		c.networking.Spec.KeepAliveCountMax = change.KeepAliveCountMax
		c.networking.Spec.XXX_unrecognized = append(c.networking.Spec.XXX_unrecognized, change.Unknown...)
		c.stampNetworking(change.Origin)
		return c.state(), nil
	})
	on("POST /identity", func(request *http.Request) (any, error) {
		wanted := identityRequest{User: "refloat", TTL: 3600}
		if err := read(request, &wanted); err != nil {
			return nil, err
		}
		return c.authorities.writeIdentity(wanted.User, seconds(wanted.TTL))
	})
	return mux
}

func (c *cluster) changeAuth(request *http.Request) (any, error) {
	found := c.auth(request.PathValue("id"))
	if found == nil {
		return nil, http.ErrMissingFile
	}
	before := *found
	if err := read(request, found); err != nil {
		*found = before
		return nil, err
	}
	found.ID = before.ID
	if found.Backend == backendFailed && before.Backend == backendOK {
		// Our reading: an auth that loses its backend ends its watches, and serves lists from its cache.
		c.freeze(found)
		c.watches.drop(found.ID)
	}
	if found.Backend == backendOK {
		found.frozen = nil
	}
	found.showHealth()
	return c.state(), c.restart(before.Running, found.Running, &found.stop, func() error { return found.start(c) })
}

func (c *cluster) changeProxy(request *http.Request) (any, error) {
	found := c.proxy(request.PathValue("id"))
	if found == nil {
		return nil, http.ErrMissingFile
	}
	before := *found
	if err := read(request, found); err != nil {
		*found = before
		return nil, err
	}
	found.ID = before.ID
	return c.state(), c.restart(before.Running, found.Running, &found.stop, func() error { return found.start(c) })
}

// restart closes or opens the ports of an instance. It gives the lock away meanwhile: handlers that end need it.
func (c *cluster) restart(before, after bool, stop *[]func(), start func() error) error {
	if before == after {
		return nil
	}
	if after {
		return start()
	}
	closing := *stop
	*stop = nil
	c.mu.Unlock()
	defer c.mu.Lock()
	for _, end := range closing {
		end()
	}
	return nil
}

// state is what the control API shows.
func (c *cluster) state() map[string]any {
	auths, proxies := []map[string]any{}, []map[string]any{}
	for _, a := range c.auths {
		auths = append(auths, map[string]any{
			"id": a.ID, "address": a.address, "diag": a.diagAddress, "running": a.Running, "backend": a.Backend,
		})
	}
	for _, p := range c.proxies {
		proxies = append(proxies, map[string]any{"id": p.ID, "diag": p.diagAddress, "running": p.Running})
	}
	stored := map[string]int{}
	for kind, store := range c.stores {
		stored[kind] = len(store.entries)
	}
	c.traffic.mu.Lock()
	defer c.traffic.mu.Unlock()
	calls, bytes := map[string]int{}, map[string]int{}
	for method, count := range c.traffic.calls {
		calls[method] = count
	}
	for method, count := range c.traffic.bytes {
		bytes[method] = count
	}
	return map[string]any{
		"cluster": c.name, "auths": auths, "proxies": proxies, "settings": c.settings, "resources": stored,
		"networking": map[string]any{
			"revision": c.networking.Metadata.Revision, "origin": c.networking.Origin(),
			"keep_alive_count_max": c.networking.Spec.KeepAliveCountMax, "unknown": c.networking.Spec.XXX_unrecognized,
		},
		"agents": len(c.agents), "watches": len(c.watches.open), "calls": calls, "bytes": bytes,
	}
}
