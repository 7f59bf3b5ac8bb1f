// A grpc-go client that makes the calls of a script, all on one channel, and says how each ended.
//
// The script is JSON on standard input: a list of calls, each with "method", "timeout" (as 450us; none without it),
// "metadata", "times" (how often, one after another; 1 without it) and "background" (it runs beside those after it).
// The answer is JSON on standard output: for each call of the script in its order its results, and how many
// connections the channel made.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"refloat.dev/peers/grpcraw"
)

var address = flag.String("address", "", "where to call")

type call struct {
	Method     string            `json:"method"`
	Timeout    string            `json:"timeout"`
	Metadata   map[string]string `json:"metadata"`
	Times      int               `json:"times"`
	Background bool              `json:"background"`
}

type result struct {
	Code     string  `json:"code"`
	Details  string  `json:"details"`
	Messages int     `json:"messages"`
	Seconds  float64 `json:"seconds"`
}

type report struct {
	Results     [][]result `json:"results"`
	Connections int64      `json:"connections"`
}

// connections counts what the channel dials.
type connections struct{ begun atomic.Int64 }

func (c *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *connections) HandleRPC(context.Context, stats.RPCStats)                         {}
func (c *connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *connections) HandleConn(_ context.Context, event stats.ConnStats) {
	if _, ok := event.(*stats.ConnBegin); ok {
		c.begun.Add(1)
	}
}

// make one call of one message and read all that is answered.
func (c call) make(conn *grpc.ClientConn) result {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if c.Timeout != "" {
		wait, err := time.ParseDuration(c.Timeout)
		if err != nil {
			log.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(ctx, wait)
	}
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, metadata.New(c.Metadata))
	began := time.Now()
	messages, err := c.exchange(ctx, conn)
	ended := status.Convert(err)
	return result{ended.Code().String(), ended.Message(), messages, time.Since(began).Seconds()}
}

func (c call) exchange(ctx context.Context, conn *grpc.ClientConn) (int, error) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, c.Method)
	if err != nil {
		return 0, err
	}
	request := []byte("hi")
	if err := stream.SendMsg(&request); err != nil && err != io.EOF {
		return 0, err
	}
	if err := stream.CloseSend(); err != nil {
		return 0, err
	}
	for messages := 0; ; messages++ {
		var answer []byte
		if err := stream.RecvMsg(&answer); err == io.EOF {
			return messages, nil
		} else if err != nil {
			return messages, err
		}
	}
}

func main() {
	flag.Parse()
	var script []call
	if err := json.NewDecoder(os.Stdin).Decode(&script); err != nil {
		log.Fatal(err)
	}
	counted := &connections{}
	conn, err := grpc.Dial(
		*address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(grpcraw.Codec{})),
		grpc.WithStatsHandler(counted),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answer := report{Results: make([][]result, len(script))}
	var waiting sync.WaitGroup
	for number, entry := range script {
		number, entry := number, entry
		work := func() {
			for times := 0; times == 0 || times < entry.Times; times++ {
				answer.Results[number] = append(answer.Results[number], entry.make(conn))
			}
		}
		if !entry.Background {
			work()
			continue
		}
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			work()
		}()
	}
	waiting.Wait()
	answer.Connections = counted.begun.Load()
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		log.Fatal(err)
	}
}
