// A gRPC server with the default options of grpc-go: the standard health service, and every other method echoes.
package main

import (
	"fmt"
	"io"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"
)

// An empty message keeps the fields of any other one.
func echo(_ interface{}, stream grpc.ServerStream) error {
	for {
		message := new(emptypb.Empty)
		if err := stream.RecvMsg(message); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(message); err != nil {
			return err
		}
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(echo))
	healthpb.RegisterHealthServer(server, health.NewServer())
	fmt.Printf("{\"event\":\"ready\",\"grpc\":%q}\n", listener.Addr())
	log.Fatal(server.Serve(listener))
}
