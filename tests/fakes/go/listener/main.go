// A tunnel server whose TCP connections become sessions to one target, for the bench and for tests of connections that
// the server lets go.
//
// The module's own cmd/server only bridges between tunnel clients, and cmd/client carries one session on its standard
// input and output: neither takes TCP connections. This one calls the same library in the way its cmd/target does
// (Server.NewSession, bidi.Copy), so that "two hops" mean the same for every variant.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/openconfig/grpctunnel/bidi"
	"github.com/openconfig/grpctunnel/tunnel"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	tpb "github.com/openconfig/grpctunnel/proto/tunnel"
)

var (
	tunnelAddress = flag.String("tunnel_address", "127.0.0.1:0", "where tunnel clients register")
	listenAddress = flag.String("listen_address", "127.0.0.1:0", "where TCP connections are taken")
	target        = flag.String("target", "", "the target of every connection")
	targetType    = flag.String("target_type", "", "its type")
	certFile      = flag.String("cert_file", "", "certificate; without it the tunnel is plain")
	keyFile       = flag.String("key_file", "", "its key")
	maxAge        = flag.Duration("max_connection_age", 0, "let go of connections that are so old; 0 is never")
)

func serve(conn net.Conn, ts *tunnel.Server) {
	defer conn.Close()
	session, err := ts.NewSession(context.Background(), tunnel.ServerSession{
		Target: tunnel.Target{ID: *target, Type: *targetType},
	})
	if err != nil {
		log.Printf("no session: %v", err)
		return
	}
	if err := bidi.Copy(session, conn); err != nil && err != io.EOF {
		log.Printf("session ended: %v", err)
	}
}

func run() error {
	opts, err := tunnel.ServerTLSCredsOpts(*certFile, *keyFile)
	if err != nil {
		return err
	}
	if *maxAge > 0 {
		opts = append(opts, grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: *maxAge}))
	}
	ts, err := tunnel.NewServer(tunnel.ServerConfig{
		AddTargetHandler: func(t tunnel.Target) error {
			log.Printf("handling target addition: (%s:%s)", t.ID, t.Type)
			return nil
		},
	})
	if err != nil {
		return err
	}
	server := grpc.NewServer(opts...)
	tpb.RegisterTunnelServer(server, ts)
	tunnels, err := net.Listen("tcp", *tunnelAddress)
	if err != nil {
		return err
	}
	users, err := net.Listen("tcp", *listenAddress)
	if err != nil {
		return err
	}
	fmt.Printf("{\"event\":\"ready\",\"tunnel\":%q,\"listen\":%q}\n", tunnels.Addr(), users.Addr())
	go func() {
		for {
			conn, err := users.Accept()
			if err != nil {
				log.Fatal(err)
			}
			go serve(conn, ts)
		}
	}()
	return server.Serve(tunnels)
}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
