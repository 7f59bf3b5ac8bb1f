package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gravitational/teleport/api/client/proto"
	clusterconfigpb "github.com/gravitational/teleport/api/gen/proto/go/teleport/clusterconfig/v1"
	"github.com/gravitational/teleport/api/utils/grpc/interceptors"
	"github.com/gravitational/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const (
	backendOK     = "ok"
	backendFailed = "failed"
)

// authInstance is one auth: the API on one port, gRPC and HTTP told apart by ALPN as Teleport does, and a diag port.
type authInstance struct {
	ID        string  `json:"id"`
	Running   bool    `json:"running"`
	Backend   string  `json:"backend"`
	ClockSkew float64 `json:"clock_skew_seconds"`

	address, diagAddress string
	// What it knew when its backend failed; nil while it works.
	frozen         map[string][]entry
	next, lastSeen time.Time
	config         *tls.Config
	health         *health.Server
	stop           []func()
}

// proxyInstance is one proxy: only its diag port is real.
type proxyInstance struct {
	ID      string `json:"id"`
	Running bool   `json:"running"`
	// Kinds of agents, with the number of tunnels that are not there although the agents' resources are.
	MissingTunnels map[string]int `json:"missing_tunnels"`
	// 0 ok, 1 recovering, 2 degraded, 3 starting.
	State int `json:"state"`

	diagAddress    string
	next, lastSeen time.Time
	stop           []func()
}

func (a *authInstance) skew() time.Duration { return seconds(a.ClockSkew) }

// tlsListener hands the connections of one protocol to the server of it.
type tlsListener struct {
	address     net.Addr
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func newTLSListener(address net.Addr) *tlsListener {
	return &tlsListener{address: address, connections: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *tlsListener) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *tlsListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *tlsListener) Addr() net.Addr { return l.address }

func (l *tlsListener) hand(connection net.Conn) {
	select {
	case l.connections <- connection:
	case <-l.closed:
		_ = connection.Close()
	}
}

// establishedTLS are gRPC's credentials for connections whose handshake is done.
type establishedTLS struct {
	credentials.TransportCredentials
}

func (establishedTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	connection, isTLS := raw.(*tls.Conn)
	if !isTLS {
		return nil, nil, errors.New("not a TLS connection")
	}
	return connection, credentials.TLSInfo{
		State:          connection.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

func (establishedTLS) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (e establishedTLS) Clone() credentials.TransportCredentials { return e }

// The calls that Teleport's auths serve to callers without a certificate.
var openMethods = []string{healthpb.Health_Check_FullMethodName, healthpb.Health_Watch_FullMethodName, getServiceConfig}

// checkCaller lets only callers with a certificate through, but to the open calls, and hides what a version lacks.
func (c *cluster) checkCaller(ctx context.Context, method string) error {
	c.mu.Lock()
	lacks := c.settings.lacks(method)
	c.mu.Unlock()
	if lacks {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	if slices.Contains(openMethods, method) {
		return nil
	}
	caller, _ := peer.FromContext(ctx)
	if info, isTLS := caller.AuthInfo.(credentials.TLSInfo); !isTLS || len(info.State.PeerCertificates) == 0 {
		return trace.AccessDenied("access denied: a client certificate is needed")
	}
	return nil
}

func (c *cluster) unary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	if err := c.checkCaller(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

func (c *cluster) stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := c.checkCaller(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(service, stream)
}

// start opens an auth's ports: any free ones the first time, the same ones later.
func (a *authInstance) start(c *cluster) error {
	listener, err := listen(&a.address)
	if err != nil {
		return err
	}
	grpcConnections, httpConnections := newTLSListener(listener.Addr()), newTLSListener(listener.Addr())
	server := grpc.NewServer(
		grpc.Creds(establishedTLS{}), grpc.StatsHandler(&c.traffic),
		grpc.ChainUnaryInterceptor(interceptors.GRPCServerUnaryErrorInterceptor, c.unary),
		grpc.ChainStreamInterceptor(interceptors.GRPCServerStreamErrorInterceptor, c.stream),
	)
	proto.RegisterAuthServiceServer(server, &authService{cluster: c, auth: a})
	registerServiceConfig(server, c)
	registerPresence(server, &presenceService{cluster: c, auth: a})
	clusterconfigpb.RegisterClusterConfigServiceServer(server, &clusterConfigService{cluster: c, auth: a})
	a.health = health.NewServer()
	healthpb.RegisterHealthServer(server, a.health)
	a.showHealth()
	api := &http.Server{Handler: c.authAPI(a), ReadHeaderTimeout: time.Minute}
	diag, err := serveDiag(&a.diagAddress, c.authDiag(a))
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(grpcConnections) }()
	go func() { _ = api.Serve(httpConnections) }()
	go a.accept(listener, grpcConnections, httpConnections)
	a.stop = []func(){
		func() { _ = listener.Close() }, server.Stop, func() { _ = api.Close() }, func() { _ = diag.Close() },
	}
	return nil
}

func (a *authInstance) accept(listener net.Listener, grpcConnections, httpConnections *tlsListener) {
	for {
		raw, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			connection := tls.Server(raw, a.config)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := connection.HandshakeContext(ctx); err != nil {
				_ = raw.Close()
			} else if connection.ConnectionState().NegotiatedProtocol == "h2" {
				grpcConnections.hand(connection)
			} else {
				httpConnections.hand(connection)
			}
		}()
	}
}

func (a *authInstance) showHealth() {
	shown := healthpb.HealthCheckResponse_SERVING
	if a.Backend != backendOK {
		shown = healthpb.HealthCheckResponse_NOT_SERVING
	}
	a.health.SetServingStatus("", shown)
}

func (p *proxyInstance) start(c *cluster) error {
	diag, err := serveDiag(&p.diagAddress, c.proxyDiag(p))
	if err != nil {
		return err
	}
	p.stop = []func(){func() { _ = diag.Close() }}
	return nil
}

// listen opens a port, and notes which one it is the first time.
func listen(address *string) (net.Listener, error) {
	if *address == "" {
		*address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", *address, err)
	}
	*address = listener.Addr().String()
	return listener, nil
}

func serveDiag(address *string, handler http.Handler) (*http.Server, error) {
	listener, err := listen(address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	return server, nil
}
