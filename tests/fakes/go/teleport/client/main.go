// Teleport's own Go client: connects with an identity file or a TLS triple, and prints as JSON what each call gave, or its
// error. Its server name is Teleport's default.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log"
	"os"
	"slices"
	"time"

	"github.com/gravitational/teleport/api/client"
	"github.com/gravitational/teleport/api/client/proto"
	"github.com/gravitational/teleport/api/defaults"
	"github.com/gravitational/teleport/api/types"
	"github.com/gravitational/trace"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// outcome is what one call gave.
type outcome struct {
	OK bool `json:"ok"`
	// What Teleport's client makes of the gRPC error.
	Kind  string `json:"kind"`
	Error string `json:"error"`
	Value any    `json:"value"`
}

func kindOf(err error) string {
	switch {
	case trace.IsAccessDenied(err):
		return "AccessDenied"
	case trace.IsNotImplemented(err):
		return "NotImplemented"
	case trace.IsCompareFailed(err):
		return "CompareFailed"
	case trace.IsConnectionProblem(err):
		return "ConnectionProblem"
	case trace.IsBadParameter(err):
		return "BadParameter"
	case trace.IsNotFound(err):
		return "NotFound"
	}
	return "other"
}

func names(resources []types.ResourceWithLabels) []string {
	found := []string{}
	for _, each := range resources {
		found = append(found, each.GetName())
	}
	slices.Sort(found)
	return found
}

type run struct {
	ctx     context.Context
	clt     *client.Client
	results map[string]outcome
}

func (r run) call(name string, do func() (any, error)) {
	value, err := do()
	if err != nil {
		r.results[name] = outcome{Kind: kindOf(err), Error: err.Error()}
		return
	}
	r.results[name] = outcome{OK: true, Value: value}
}

// read makes every call that reads.
func (r run) read() {
	r.call("Ping", func() (any, error) {
		response, err := r.clt.Ping(r.ctx)
		return map[string]any{"cluster": response.ClusterName, "version": response.ServerVersion}, err
	})
	for _, kind := range []string{"node", "app_server", "db_server", "kube_server", "windows_desktop_service"} {
		r.call("ListResources/"+kind, func() (any, error) {
			found, err := client.GetAllResources[types.ResourceWithLabels](
				r.ctx, r.clt, &proto.ListResourcesRequest{ResourceType: kind, Namespace: defaults.Namespace, Limit: 100},
			)
			return names(found), err
		})
	}
	r.call("ListUnifiedResources", func() (any, error) {
		response, err := r.clt.ListUnifiedResources(r.ctx, &proto.ListUnifiedResourcesRequest{Limit: 1000})
		if err != nil {
			return nil, err
		}
		return len(response.Resources), nil
	})
	r.call("GetInstances", func() (any, error) {
		found := map[string]string{}
		stream := r.clt.GetInstances(r.ctx, types.InstanceFilter{})
		for stream.Next() {
			spec := stream.Item().(*types.InstanceV1).Spec
			found[stream.Item().GetName()] = spec.AuthID
		}
		return found, stream.Done()
	})
	r.call("GetInventoryStatus", func() (any, error) {
		response, err := r.clt.GetInventoryStatus(r.ctx, proto.InventoryStatusRequest{Connected: true})
		return len(response.Connected), err
	})
	r.call("ListRemoteClusters", func() (any, error) {
		found, _, err := r.clt.ListRemoteClusters(r.ctx, 100, "")
		statuses := map[string]string{}
		for _, each := range found {
			statuses[each.GetName()] = each.GetConnectionStatus()
		}
		return statuses, err
	})
	r.call("WatchEvents", func() (any, error) {
		watcher, err := r.clt.NewWatcher(r.ctx, types.Watch{Kinds: []types.WatchKind{{Kind: types.KindNode}}})
		if err != nil {
			return nil, err
		}
		defer watcher.Close()
		select {
		case event := <-watcher.Events():
			return event.Type.String(), nil
		case <-watcher.Done():
			return nil, watcher.Error()
		case <-r.ctx.Done():
			return nil, r.ctx.Err()
		}
	})
	r.call("GetClusterNetworkingConfig", func() (any, error) {
		found, err := r.clt.GetClusterNetworkingConfig(r.ctx)
		if err != nil {
			return nil, err
		}
		return map[string]any{
			"revision": found.GetRevision(), "origin": found.Origin(),
			"keep_alive_interval": found.GetKeepAliveInterval().String(), "keep_alive_count_max": found.GetKeepAliveCountMax(),
			"name": found.GetName(), "kind": found.GetKind(), "version": found.GetVersion(),
		}, nil
	})
	for _, kind := range []string{"Auth", "Proxy"} {
		r.call("List"+kind+"Servers", func() (any, error) { return r.listServers(kind) })
	}
	r.call("GetServiceConfig", r.serviceConfig)
	r.call("Health", func() (any, error) {
		response, err := healthpb.NewHealthClient(r.clt.GetConnection()).Check(r.ctx, &healthpb.HealthCheckRequest{})
		return response.GetStatus().String(), err
	})
}

// write changes the networking config in each way, and at last tries an old revision.
func (r run) write() {
	var old types.ClusterNetworkingConfig
	count := int64(0)
	change := func(name string, do func(types.ClusterNetworkingConfig) (types.ClusterNetworkingConfig, error)) {
		r.call(name, func() (any, error) {
			current, err := r.clt.GetClusterNetworkingConfig(r.ctx)
			if err != nil {
				return nil, err
			}
			if old == nil {
				old = current.(*types.ClusterNetworkingConfigV2)
			}
			config := current.(*types.ClusterNetworkingConfigV2)
			count++
			config.Spec.KeepAliveCountMax = 3 + count
			changed, err := do(config)
			if err != nil {
				return nil, err
			}
			return changed.GetKeepAliveCountMax(), nil
		})
	}
	change("UpdateClusterNetworkingConfig", func(config types.ClusterNetworkingConfig) (types.ClusterNetworkingConfig, error) {
		return r.clt.UpdateClusterNetworkingConfig(r.ctx, config)
	})
	change("UpsertClusterNetworkingConfig", func(config types.ClusterNetworkingConfig) (types.ClusterNetworkingConfig, error) {
		return r.clt.UpsertClusterNetworkingConfig(r.ctx, config)
	})
	r.call("UpdateClusterNetworkingConfig/old", func() (any, error) {
		_, err := r.clt.UpdateClusterNetworkingConfig(r.ctx, old)
		return nil, err
	})
	r.call("ResetClusterNetworkingConfig", func() (any, error) {
		if err := r.clt.ResetClusterNetworkingConfig(r.ctx); err != nil {
			return nil, err
		}
		found, err := r.clt.GetClusterNetworkingConfig(r.ctx)
		if err != nil {
			return nil, err
		}
		return found.GetKeepAliveCountMax(), nil
	})
}

func main() {
	address := flag.String("address", "", "host:port of the auth")
	identity := flag.String("identity", "", "identity file")
	certificate := flag.String("cert", "", "certificate, instead of an identity file")
	key := flag.String("key", "", "its key")
	authority := flag.String("ca", "", "CA")
	httpAddress := flag.String("http", "", "host:port of the auth's HTTP API")
	httpWrites := flag.Bool("http-writes", false, "write by the HTTP API, too")
	flag.Parse()
	log.SetOutput(io.Discard)

	with := client.LoadIdentityFile(*identity)
	if *identity == "" {
		with = client.LoadKeyPair(*certificate, *key, *authority)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r := run{ctx: ctx, results: map[string]outcome{}}
	r.call("connect", func() (any, error) {
		made, err := client.New(ctx, client.Config{
			Addrs: []string{*address}, Credentials: []client.Credentials{with}, DialTimeout: 10 * time.Second,
		})
		r.clt = made
		return nil, err
	})
	if r.clt != nil {
		r.read()
		r.write()
		_ = r.clt.Close()
		if *httpAddress != "" {
			newHTTPRun(r, *httpAddress, must(with.TLSConfig())).run(*httpWrites)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(r.results); err != nil {
		panic(err)
	}
}
