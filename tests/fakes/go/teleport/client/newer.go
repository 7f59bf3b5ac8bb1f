package main

import (
	"fmt"

	"refloat.dev/teleport/newer"
)

// listServers reads a list of servers, page by page.
func (r run) listServers(kind string) (any, error) {
	found := map[string]string{}
	token := ""
	for {
		response := &newer.ListServersResponse{}
		method := "/teleport.presence.v1.PresenceService/List" + kind + "Servers"
		request := &newer.ListServersRequest{PageSize: 1, PageToken: token}
		if err := r.clt.GetConnection().Invoke(r.ctx, method, request, response); err != nil {
			return nil, err
		}
		for _, server := range response.Servers {
			if server.Expiry().IsZero() {
				return nil, fmt.Errorf("%s has no expiry", server.GetName())
			}
			found[server.GetName()] = server.GetKind() + " " + server.GetAddr()
		}
		if token = response.NextPageToken; token == "" {
			return found, nil
		}
	}
}

// serviceConfig reads the policy of clients as upstream's client does.
func (r run) serviceConfig() (any, error) {
	response := &newer.GetServiceConfigResponse{}
	method := "/teleport.grpcclientconfig.v1.ServiceConfigDiscoveryService/GetServiceConfig"
	if err := r.clt.GetConnection().Invoke(r.ctx, method, &newer.GetServiceConfigRequest{}, response); err != nil {
		return nil, err
	}
	mode := int32(-1)
	for _, each := range response.Config.LoadBalancingConfig {
		if each.TeleportPickHealthy != nil {
			mode = each.TeleportPickHealthy.Mode
			break
		}
	}
	check := response.Config.HealthCheckConfig
	return map[string]any{"mode": mode, "health_check": check != nil && check.ServiceName != nil}, nil
}
