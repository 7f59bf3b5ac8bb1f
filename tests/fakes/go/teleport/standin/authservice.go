package main

import (
	"context"
	"slices"
	"strings"

	"github.com/gravitational/teleport/api/client/proto"
	"github.com/gravitational/teleport/api/types"
	"github.com/gravitational/trace"
)

// authService is proto.AuthService of one auth.
type authService struct {
	proto.UnimplementedAuthServiceServer
	cluster *cluster
	auth    *authInstance
}

func (s *authService) Ping(context.Context, *proto.PingRequest) (*proto.PingResponse, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	return &proto.PingResponse{
		ClusterName: s.cluster.name, ServerVersion: s.cluster.settings.Version,
		ServerFeatures:  &proto.Features{Cloud: s.cluster.settings.Cloud, App: true, DB: true, Kubernetes: true},
		ProxyPublicAddr: "proxy." + s.cluster.name + ":443",
	}, nil
}

// CreateAuthenticateChallenge refuses as Teleport does when the caller is not a person: its client then reports the refusal
// that led here.
func (s *authService) CreateAuthenticateChallenge(
	context.Context, *proto.CreateAuthenticateChallengeRequest,
) (*proto.MFAAuthenticateChallenge, error) {
	return nil, trace.BadParameter("only a person can solve an MFA challenge")
}

// agentKinds are what ListResources and ListUnifiedResources serve of agents here.
var agentKinds = []string{
	types.KindNode, types.KindAppServer, types.KindDatabaseServer, types.KindKubeServer, types.KindWindowsDesktopService,
}

func paginated(stored entry) *proto.PaginatedResource {
	switch made := stored.resource.(type) {
	case *types.ServerV2:
		return &proto.PaginatedResource{Resource: &proto.PaginatedResource_Node{Node: made}}
	case *types.AppServerV3:
		return &proto.PaginatedResource{Resource: &proto.PaginatedResource_AppServer{AppServer: made}}
	case *types.DatabaseServerV3:
		return &proto.PaginatedResource{Resource: &proto.PaginatedResource_DatabaseServer{DatabaseServer: made}}
	case *types.KubernetesServerV3:
		return &proto.PaginatedResource{Resource: &proto.PaginatedResource_KubernetesServer{KubernetesServer: made}}
	case *types.WindowsDesktopServiceV3:
		return &proto.PaginatedResource{
			Resource: &proto.PaginatedResource_WindowsDesktopService{WindowsDesktopService: made},
		}
	}
	panic("not a resource of an agent: " + stored.kind)
}

func allPaginated(entries []entry) []*proto.PaginatedResource {
	found := make([]*proto.PaginatedResource, len(entries))
	for index, stored := range entries {
		found[index] = paginated(stored)
	}
	return found
}

func (s *authService) ListResources(
	_ context.Context, request *proto.ListResourcesRequest,
) (*proto.ListResourcesResponse, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	kind := request.ResourceType
	if !slices.Contains(agentKinds, kind) {
		return nil, trace.NotImplemented("resource type %s does not support pagination", kind)
	}
	if err := s.cluster.settings.allow(kind, types.VerbList, types.VerbRead); err != nil {
		return nil, err
	}
	all := s.cluster.list(s.auth, kind)
	entries, next, err := s.cluster.page(all, request.StartKey, request.Limit)
	if err != nil {
		return nil, err
	}
	response := &proto.ListResourcesResponse{Resources: allPaginated(entries), NextKey: next}
	if request.NeedTotalCount {
		response.TotalCount = int32(len(all))
	}
	return response, nil
}

// ListUnifiedResources lists what the role may read, and says nothing of what it may not.
func (s *authService) ListUnifiedResources(
	_ context.Context, request *proto.ListUnifiedResourcesRequest,
) (*proto.ListUnifiedResourcesResponse, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if err := request.CheckAndSetDefaults(); err != nil {
		return nil, err
	}
	// Our reading: desktop services are not among the unified resources, kinds are those of what the servers serve, and
	// keys begin with the kind.
	var found []entry
	refused := 0
	startKind, startKey, _ := strings.Cut(request.StartKey, "/")
	for _, kind := range unifiedOrder {
		if err := s.cluster.settings.allow(kind, types.VerbList, types.VerbRead); err != nil {
			refused++
			if refused == len(unifiedOrder) {
				return nil, err
			}
			continue
		}
		if kind < startKind || len(request.Kinds) > 0 && !slices.Contains(request.Kinds, unifiedKinds[kind]) {
			continue
		}
		start := ""
		if kind == startKind {
			start = startKey
		}
		all := s.cluster.list(s.auth, kind)
		limit := request.Limit - int32(len(found))
		if limit <= 0 {
			return &proto.ListUnifiedResourcesResponse{Resources: allPaginated(found), NextKey: kind + "/"}, nil
		}
		entries, next, err := s.cluster.page(all, start, limit)
		if err != nil {
			return nil, err
		}
		found = append(found, entries...)
		if next != "" {
			return &proto.ListUnifiedResourcesResponse{Resources: allPaginated(found), NextKey: kind + "/" + next}, nil
		}
	}
	return &proto.ListUnifiedResourcesResponse{Resources: allPaginated(found)}, nil
}

// The kinds of servers in the order of their names.
var unifiedOrder = []string{types.KindAppServer, types.KindDatabaseServer, types.KindKubeServer, types.KindNode}

// The kinds of users' resources that ListUnifiedResources knows, by the kind of the server.
var unifiedKinds = map[string]string{
	types.KindNode: types.KindNode, types.KindAppServer: types.KindApp, types.KindDatabaseServer: types.KindDatabase,
	types.KindKubeServer: types.KindKubernetesCluster,
}

// instances returns every process that sends heartbeats of its own, as the auths saw it last.
func (c *cluster) instances() []*types.InstanceV1 {
	var found []*types.InstanceV1
	add := func(id, hostname, auth string, role types.SystemRole, seen types.InstanceSpecV1) {
		seen.Version, seen.Hostname, seen.AuthID, seen.Services = c.settings.Version, hostname, auth, []types.SystemRole{role}
		made := must(types.NewInstance(id, seen)).(*types.InstanceV1)
		found = append(found, made)
	}
	if !c.settings.InstanceHeartbeats {
		return nil
	}
	for _, a := range c.auths {
		add(a.ID, a.ID, a.ID, types.RoleAuth, types.InstanceSpecV1{LastSeen: a.lastSeen.UTC()})
	}
	for _, p := range c.proxies {
		add(p.ID, p.ID, c.auths[0].ID, types.RoleProxy, types.InstanceSpecV1{LastSeen: p.lastSeen.UTC()})
	}
	for _, a := range c.agents {
		if !a.lastSeen.IsZero() {
			seen := a.lastSeen
			if its := c.auth(a.auth); its != nil {
				seen = seen.Add(its.skew())
			}
			add(a.id, a.hostname, a.auth, services[a.kind], types.InstanceSpecV1{LastSeen: seen.UTC()})
		}
	}
	return found
}

func (s *authService) GetInstances(filter *types.InstanceFilter, stream proto.AuthService_GetInstancesServer) error {
	s.cluster.mu.Lock()
	err := s.cluster.settings.allow(types.KindInstance, types.VerbList, types.VerbRead)
	var all []*types.InstanceV1
	if err == nil {
		all = s.cluster.instances()
	}
	s.cluster.mu.Unlock()
	if err != nil {
		return err
	}
	for _, made := range all {
		if !filter.Match(made) {
			continue
		}
		if err := stream.Send(made); err != nil {
			return err
		}
	}
	return nil
}

// connected returns the agents whose control streams end at an auth.
func (c *cluster) connected(auth *authInstance) []*agent {
	var found []*agent
	for _, a := range c.agents {
		if a.auth == auth.ID && !a.stopped && len(c.tunnelProxies(a)) > 0 {
			found = append(found, a)
		}
	}
	return found
}

func (s *authService) GetInventoryStatus(
	_ context.Context, request *proto.InventoryStatusRequest,
) (*proto.InventoryStatusSummary, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if err := s.cluster.settings.allowBuiltinAdmin(); err != nil {
		return nil, err
	}
	summary := &proto.InventoryStatusSummary{
		VersionCounts: map[string]uint32{}, UpgraderCounts: map[string]uint32{}, ServiceCounts: map[string]uint32{},
	}
	for _, made := range s.cluster.instances() {
		summary.InstanceCount++
		summary.VersionCounts[made.Spec.Version]++
		for _, service := range made.Spec.Services {
			summary.ServiceCounts[string(service)]++
		}
	}
	if request.Connected {
		for _, a := range s.cluster.connected(s.auth) {
			summary.Connected = append(summary.Connected, proto.UpstreamInventoryHello{
				Version: s.cluster.settings.Version, ServerID: a.id, Hostname: a.hostname,
				Services: []types.SystemRole{services[a.kind]},
			})
		}
	}
	return summary, nil
}

func (s *authService) GetInventoryConnectedServiceCounts(
	context.Context, *proto.InventoryConnectedServiceCountsRequest,
) (*proto.InventoryConnectedServiceCounts, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if err := s.cluster.settings.allowBuiltinAdmin(); err != nil {
		return nil, err
	}
	counts := map[types.SystemRole]uint64{}
	for _, a := range s.cluster.connected(s.auth) {
		counts[services[a.kind]]++
	}
	return &proto.InventoryConnectedServiceCounts{ServiceCounts: counts}, nil
}
