// A grpc-go server that answers any method as the call's metadata says, and grpc.health.v1 with SERVING.
//
//	x-delay     how long the handler works before it answers, as 30ms; it ends early when its context does
//	x-messages  how many messages it answers with, 1 without it
//	x-every     how long it waits before each message after the first
//	x-no-end    the handler does not return after its messages until its context ends
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"refloat.dev/peers/grpcraw"
)

var listenAddress = flag.String("listen", "127.0.0.1:0", "where calls are taken")

// What grpc.health.v1 answers: HealthCheckResponse{status: SERVING}, as bytes.
var serving = []byte{0x08, 0x01}

func first(md metadata.MD, key string) string {
	if values := md.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

func duration(md metadata.MD, key string) time.Duration {
	found, err := time.ParseDuration(first(md, key))
	if err != nil {
		return 0
	}
	return found
}

func sleep(ctx context.Context, wait time.Duration) error {
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func handle(_ any, stream grpc.ServerStream) error {
	ctx := stream.Context()
	method, _ := grpc.MethodFromServerStream(stream)
	md, _ := metadata.FromIncomingContext(ctx)
	var request []byte
	for {
		var message []byte
		err := stream.RecvMsg(&message)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		request = append(request, message...)
	}
	if method == "/grpc.health.v1.Health/Check" {
		return stream.SendMsg(&serving)
	}
	if err := sleep(ctx, duration(md, "x-delay")); err != nil {
		return err
	}
	count, err := strconv.Atoi(first(md, "x-messages"))
	if err != nil {
		count = 1
	}
	for number := 0; number < count; number++ {
		if number > 0 {
			if err := sleep(ctx, duration(md, "x-every")); err != nil {
				return err
			}
		}
		if err := stream.SendMsg(&request); err != nil {
			return err
		}
	}
	if first(md, "x-no-end") != "" {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

func main() {
	flag.Parse()
	listener, err := net.Listen("tcp", *listenAddress)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(grpcraw.Codec{}), grpc.UnknownServiceHandler(handle))
	fmt.Printf("{\"event\":\"ready\",\"address\":%q}\n", listener.Addr())
	log.Fatal(server.Serve(listener))
}
