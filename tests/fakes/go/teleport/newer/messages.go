// Package newer has messages that Teleport's API got after the Go module that these programs are built with: the lists of
// auths and proxies, and the discovery of the service config. The messages are written here by their numbers; the servers
// in the lists are Teleport's.
package newer

import (
	"github.com/gogo/protobuf/proto"
	"github.com/gravitational/teleport/api/types"
)

// ListServersRequest is ListAuthServersRequest and ListProxyServersRequest.
type ListServersRequest struct {
	PageSize  int32  `protobuf:"varint,1,opt,name=page_size,proto3"`
	PageToken string `protobuf:"bytes,2,opt,name=page_token,proto3"`
}

// ListServersResponse is ListAuthServersResponse and ListProxyServersResponse.
type ListServersResponse struct {
	Servers       []*types.ServerV2 `protobuf:"bytes,1,rep,name=servers,proto3"`
	NextPageToken string            `protobuf:"bytes,2,opt,name=next_page_token,proto3"`
}

// GetServiceConfigRequest has no fields.
type GetServiceConfigRequest struct{}

// GetServiceConfigResponse is the policy that clients are to follow.
type GetServiceConfigResponse struct {
	Config *ServiceConfig `protobuf:"bytes,1,opt,name=config,proto3"`
}

// ServiceConfig is in the order of priority.
type ServiceConfig struct {
	LoadBalancingConfig []*LoadBalancerConfig `protobuf:"bytes,1,rep,name=load_balancing_config,proto3"`
	HealthCheckConfig   *HealthCheckConfig    `protobuf:"bytes,2,opt,name=health_check_config,proto3"`
}

// LoadBalancerConfig names one policy; its oneof has one member.
type LoadBalancerConfig struct {
	TeleportPickHealthy *TeleportPickHealthyConfig `protobuf:"bytes,1,opt,name=teleport_pick_healthy,proto3"`
}

// TeleportPickHealthyConfig has the mode as upstream's enum: 1 pick_first, 2 reconnect.
type TeleportPickHealthyConfig struct {
	Mode int32 `protobuf:"varint,1,opt,name=mode,proto3"`
}

// HealthCheckConfig turns health checks on by the presence of the name.
type HealthCheckConfig struct {
	ServiceName *string `protobuf:"bytes,1,opt,name=service_name,proto3"`
}

func (*ListServersRequest) ProtoMessage()        {}
func (*ListServersResponse) ProtoMessage()       {}
func (*GetServiceConfigRequest) ProtoMessage()   {}
func (*GetServiceConfigResponse) ProtoMessage()  {}
func (*ServiceConfig) ProtoMessage()             {}
func (*LoadBalancerConfig) ProtoMessage()        {}
func (*TeleportPickHealthyConfig) ProtoMessage() {}
func (*HealthCheckConfig) ProtoMessage()         {}

func (m *ListServersRequest) Reset()        { *m = ListServersRequest{} }
func (m *ListServersResponse) Reset()       { *m = ListServersResponse{} }
func (m *GetServiceConfigRequest) Reset()   { *m = GetServiceConfigRequest{} }
func (m *GetServiceConfigResponse) Reset()  { *m = GetServiceConfigResponse{} }
func (m *ServiceConfig) Reset()             { *m = ServiceConfig{} }
func (m *LoadBalancerConfig) Reset()        { *m = LoadBalancerConfig{} }
func (m *TeleportPickHealthyConfig) Reset() { *m = TeleportPickHealthyConfig{} }
func (m *HealthCheckConfig) Reset()         { *m = HealthCheckConfig{} }

func (m *ListServersRequest) String() string        { return proto.CompactTextString(m) }
func (m *ListServersResponse) String() string       { return proto.CompactTextString(m) }
func (m *GetServiceConfigRequest) String() string   { return proto.CompactTextString(m) }
func (m *GetServiceConfigResponse) String() string  { return proto.CompactTextString(m) }
func (m *ServiceConfig) String() string             { return proto.CompactTextString(m) }
func (m *LoadBalancerConfig) String() string        { return proto.CompactTextString(m) }
func (m *TeleportPickHealthyConfig) String() string { return proto.CompactTextString(m) }
func (m *HealthCheckConfig) String() string         { return proto.CompactTextString(m) }
