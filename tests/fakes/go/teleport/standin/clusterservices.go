package main

import (
	"context"
	"sort"

	"github.com/gogo/protobuf/proto"
	clusterconfigpb "github.com/gravitational/teleport/api/gen/proto/go/teleport/clusterconfig/v1"
	presencepb "github.com/gravitational/teleport/api/gen/proto/go/teleport/presence/v1"
	"github.com/gravitational/teleport/api/mfa"
	"github.com/gravitational/teleport/api/types"
	"github.com/gravitational/trace"
	"google.golang.org/grpc"

	"refloat.dev/teleport/newer"
)

// presenceService is teleport.presence.v1.PresenceService of one auth.
type presenceService struct {
	presencepb.UnimplementedPresenceServiceServer
	cluster *cluster
	auth    *authInstance
}

func (s *presenceService) listServers(kind string, request *newer.ListServersRequest) (*newer.ListServersResponse, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if err := s.cluster.settings.allow(kind, types.VerbList, types.VerbRead); err != nil {
		return nil, err
	}
	entries, next, err := s.cluster.page(s.cluster.list(s.auth, kind), request.PageToken, request.PageSize)
	if err != nil {
		return nil, err
	}
	response := &newer.ListServersResponse{NextPageToken: next}
	for _, stored := range entries {
		response.Servers = append(response.Servers, stored.resource.(*types.ServerV2))
	}
	return response, nil
}

func listServersMethod(name, kind string) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(
		service any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
	) (any, error) {
		request := &newer.ListServersRequest{}
		if err := decode(request); err != nil {
			return nil, err
		}
		info := &grpc.UnaryServerInfo{Server: service, FullMethod: "/teleport.presence.v1.PresenceService/" + name}
		return interceptor(ctx, request, info, func(_ context.Context, request any) (any, error) {
			return service.(*presenceService).listServers(kind, request.(*newer.ListServersRequest))
		})
	}}
}

func registerPresence(server *grpc.Server, service *presenceService) {
	description := presencepb.PresenceService_ServiceDesc
	description.Methods = append(
		description.Methods[:len(description.Methods):len(description.Methods)],
		listServersMethod("ListAuthServers", types.KindAuthServer),
		listServersMethod("ListProxyServers", types.KindProxy),
	)
	server.RegisterService(&description, service)
}

func (s *presenceService) ListRemoteClusters(
	_ context.Context, request *presencepb.ListRemoteClustersRequest,
) (*presencepb.ListRemoteClustersResponse, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if err := s.cluster.settings.allow(types.KindRemoteCluster, types.VerbList, types.VerbRead); err != nil {
		return nil, err
	}
	response := &presencepb.ListRemoteClustersResponse{}
	for name, each := range s.cluster.leaves {
		made := must(types.NewRemoteCluster(name)).(*types.RemoteClusterV3)
		made.Status = types.RemoteClusterStatusV3{Connection: "offline", LastHeartbeat: each.seen.UTC()}
		if each.Online {
			made.Status.Connection = "online"
		}
		response.RemoteClusters = append(response.RemoteClusters, made)
	}
	sort.Slice(response.RemoteClusters, func(first, second int) bool {
		return response.RemoteClusters[first].GetName() < response.RemoteClusters[second].GetName()
	})
	return response, nil
}

const getServiceConfig = "/teleport.grpcclientconfig.v1.ServiceConfigDiscoveryService/GetServiceConfig"

// registerServiceConfig serves the discovery of the service config, with upstream's default unless a test changes it.
func registerServiceConfig(server *grpc.Server, c *cluster) {
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "teleport.grpcclientconfig.v1.ServiceConfigDiscoveryService",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "GetServiceConfig", Handler: func(
			service any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
		) (any, error) {
			request := &newer.GetServiceConfigRequest{}
			if err := decode(request); err != nil {
				return nil, err
			}
			info := &grpc.UnaryServerInfo{Server: service, FullMethod: getServiceConfig}
			return interceptor(ctx, request, info, func(context.Context, any) (any, error) { return c.serviceConfig(), nil })
		}}},
	}, c)
}

func (c *cluster) serviceConfig() *newer.GetServiceConfigResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	config := &newer.ServiceConfig{LoadBalancingConfig: []*newer.LoadBalancerConfig{
		{TeleportPickHealthy: &newer.TeleportPickHealthyConfig{Mode: 1}},
	}}
	if c.settings.ReconnectMode {
		config.LoadBalancingConfig[0].TeleportPickHealthy.Mode = 2
		config.HealthCheckConfig = &newer.HealthCheckConfig{ServiceName: new(string)}
	}
	return &newer.GetServiceConfigResponse{Config: config}
}

// clusterConfigService is teleport.clusterconfig.v1.ClusterConfigService of one auth.
type clusterConfigService struct {
	clusterconfigpb.UnimplementedClusterConfigServiceServer
	cluster *cluster
	auth    *authInstance
}

func (s *clusterConfigService) GetClusterNetworkingConfig(
	context.Context, *clusterconfigpb.GetClusterNetworkingConfigRequest,
) (*types.ClusterNetworkingConfigV2, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if err := s.cluster.settings.allow(types.KindClusterNetworkingConfig, types.VerbRead); err != nil {
		return nil, err
	}
	if s.cluster.staleReads > 0 {
		s.cluster.staleReads--
		return proto.Clone(s.cluster.staleNetworking).(*types.ClusterNetworkingConfigV2), nil
	}
	return s.cluster.cloneNetworking(), nil
}

func (c *cluster) cloneNetworking() *types.ClusterNetworkingConfigV2 {
	return proto.Clone(c.networking).(*types.ClusterNetworkingConfigV2)
}

// write stores a networking config after the checks of an admin action.
func (s *clusterConfigService) write(
	ctx context.Context, changed *types.ClusterNetworkingConfigV2, conditional bool, origin string, verbs ...string,
) (*types.ClusterNetworkingConfigV2, error) {
	c := s.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.settings.allow(types.KindClusterNetworkingConfig, verbs...); err != nil {
		return nil, err
	}
	if c.settings.MFARequired {
		if _, err := mfa.CredentialsFromContext(ctx); err != nil {
			return nil, trace.Wrap(&mfa.ErrAdminActionMFARequired)
		}
	}
	if s.auth.Backend != backendOK {
		return nil, trace.ConnectionProblem(nil, "the backend cannot be reached")
	}
	if changed == nil {
		return nil, trace.BadParameter("missing cluster networking config")
	}
	changed = proto.Clone(changed).(*types.ClusterNetworkingConfigV2)
	if err := changed.CheckAndSetDefaults(); err != nil {
		return nil, err
	}
	if strategy, _ := changed.GetTunnelStrategyType(); strategy == types.ProxyPeering && !c.settings.Enterprise {
		return nil, trace.AccessDenied("proxy peering is an enterprise-only feature")
	}
	if conditional && changed.Metadata.Revision != c.networking.Metadata.Revision {
		return nil, trace.CompareFailed(
			"resource revision does not match, it may have been concurrently created|modified|deleted; " +
				"please work from the latest state, or use --force to overwrite",
		)
	}
	c.staleNetworking, c.staleReads = c.networking, c.settings.StaleReads
	c.networking = changed
	c.stampNetworking(origin)
	c.watches.send(c, types.OpPut, entry{kind: types.KindClusterNetworkingConfig, resource: c.cloneNetworking()})
	return c.cloneNetworking(), nil
}

func (s *clusterConfigService) UpdateClusterNetworkingConfig(
	ctx context.Context, request *clusterconfigpb.UpdateClusterNetworkingConfigRequest,
) (*types.ClusterNetworkingConfigV2, error) {
	return s.write(ctx, request.ClusterNetworkConfig, true, types.OriginDynamic, types.VerbUpdate)
}

func (s *clusterConfigService) UpsertClusterNetworkingConfig(
	ctx context.Context, request *clusterconfigpb.UpsertClusterNetworkingConfigRequest,
) (*types.ClusterNetworkingConfigV2, error) {
	return s.write(ctx, request.ClusterNetworkConfig, false, types.OriginDynamic, types.VerbCreate, types.VerbUpdate)
}

func (s *clusterConfigService) ResetClusterNetworkingConfig(
	ctx context.Context, _ *clusterconfigpb.ResetClusterNetworkingConfigRequest,
) (*types.ClusterNetworkingConfigV2, error) {
	defaults := types.DefaultClusterNetworkingConfig().(*types.ClusterNetworkingConfigV2)
	return s.write(ctx, defaults, false, types.OriginDefaults, types.VerbUpdate)
}
