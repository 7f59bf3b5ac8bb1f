package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/gravitational/teleport/api/constants"
	"github.com/gravitational/teleport/api/types"
	"github.com/gravitational/trace"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// httpRun calls the auth's older HTTP API with the JSON of Teleport's types, in both directions. Teleport's client of it is
// not in its API module.
type httpRun struct {
	r       run
	address string
	client  *http.Client
}

func newHTTPRun(r run, address string, config *tls.Config) httpRun {
	config = config.Clone()
	config.ServerName = constants.APIDomain
	config.NextProtos = []string{"http/1.1"}
	transport := &http.Transport{TLSClientConfig: config}
	return httpRun{r, address, &http.Client{Transport: transport, Timeout: 30 * time.Second}}
}

// do sends a request, reads the response into `into`, in which no field of the response may be missing but namespaces,
// which newer versions of Teleport leave out, and makes Teleport's error of a refusal.
func (h httpRun) do(method, path string, body, into any) error {
	var sent io.Reader
	if body != nil {
		sent = bytes.NewReader(must(json.Marshal(body)))
	}
	request := must(http.NewRequestWithContext(h.r.ctx, method, "https://"+h.address+path, sent))
	response, err := h.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	received := must(io.ReadAll(response.Body))
	if response.StatusCode != http.StatusOK {
		return trace.ReadError(response.StatusCode, received)
	}
	if into == nil {
		return nil
	}
	received = bytes.ReplaceAll(received, []byte(`"namespace":"default",`), nil)
	received = bytes.ReplaceAll(received, []byte(`"namespace": "default", `), nil)
	decoder := json.NewDecoder(bytes.NewReader(received))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func (h httpRun) servers(path string) (any, error) {
	var found []types.ServerV2
	if err := h.do("GET", path, nil, &found); err != nil {
		return nil, err
	}
	shown := map[string]string{}
	for _, server := range found {
		if server.Expiry().IsZero() {
			return nil, fmt.Errorf("%s has no expiry", server.GetName())
		}
		shown[server.GetName()] = server.GetKind() + " " + server.GetAddr()
	}
	return shown, nil
}

func (h httpRun) tunnels(path string) (any, error) {
	var found []types.TunnelConnectionV2
	if err := h.do("GET", path, nil, &found); err != nil {
		return nil, err
	}
	shown := map[string]string{}
	for _, connection := range found {
		shown[connection.GetName()] = connection.GetClusterName() + " " + connection.GetProxyName()
	}
	return shown, nil
}

func (h httpRun) write(name, method, path string, body any) {
	h.r.call(name, func() (any, error) { return nil, h.do(method, path, body, nil) })
}

func (h httpRun) run(writes bool) {
	h.r.call("GetAuthServers", func() (any, error) { return h.servers("/v2/authservers") })
	h.r.call("GetProxies", func() (any, error) { return h.servers("/v2/proxies") })
	h.r.call("GetAllTunnelConnections", func() (any, error) { return h.tunnels("/v2/tunnelconnections") })
	if !writes {
		return
	}
	server := func(kind, name string) map[string]any {
		made := must(types.NewServer(name, kind, types.ServerSpecV2{
			Addr: "10.0.0.8:3080", Hostname: name, Version: "18.0.0",
		}))
		return map[string]any{"server": made, "ttl": time.Minute}
	}
	h.write("UpsertProxy", "POST", "/v2/proxies", server(types.KindProxy, "client"))
	h.r.call("GetProxies/written", func() (any, error) { return h.servers("/v2/proxies") })
	h.write("DeleteProxy", "DELETE", "/v2/proxies/client", nil)
	h.r.call("GetProxies/deleted", func() (any, error) { return h.servers("/v2/proxies") })
	h.write("DeleteAllProxies", "DELETE", "/v2/proxies", nil)
	h.write("UpsertAuthServer", "POST", "/v2/authservers", server(types.KindAuthServer, "client"))
	connection := must(types.NewTunnelConnection("client-leaf-1", types.TunnelConnectionSpecV2{
		ClusterName: "leaf-1", ProxyName: "proxy-1", LastHeartbeat: time.Now().UTC(), Type: types.ProxyTunnel,
	}))
	h.write("UpsertTunnelConnection", "POST", "/v2/tunnelconnections", map[string]any{"tunnel_connection": connection})
	h.r.call("GetTunnelConnections", func() (any, error) { return h.tunnels("/v2/tunnelconnections/leaf-1") })
	h.write("DeleteTunnelConnection", "DELETE", "/v2/tunnelconnections/leaf-1/client-leaf-1", nil)
	h.write("DeleteTunnelConnections", "DELETE", "/v2/tunnelconnections/leaf-1", nil)
	h.r.call("GetAllTunnelConnections/deleted", func() (any, error) { return h.tunnels("/v2/tunnelconnections") })
}
