package main

import (
	"slices"

	"github.com/gravitational/teleport/api/client"
	"github.com/gravitational/teleport/api/client/proto"
	"github.com/gravitational/teleport/api/types"
	"github.com/gravitational/trace"
)

// Events that a slow reader may be behind; Teleport too ends the watch of a reader that is slower.
const watchBuffer = 20_000

// The kinds that can be watched: Teleport has no events of instances.
var watchable = []string{
	types.KindNode, types.KindAppServer, types.KindDatabaseServer, types.KindKubeServer, types.KindWindowsDesktopService,
	types.KindProxy, types.KindAuthServer, types.KindRemoteCluster, types.KindTunnelConnection,
	types.KindClusterNetworkingConfig,
}

type watch struct {
	auth   string
	kinds  []string
	events chan *proto.Event
	ended  chan struct{}
}

// watches are guarded by the cluster's lock.
type watches struct {
	open []*watch
	// No event is sent, and no watch ends: the loss that a reader cannot see from the stream.
	stalled bool
}

func (w *watches) send(c *cluster, operation types.OpType, stored entry) {
	if w.stalled || len(w.open) == 0 {
		return
	}
	var event *proto.Event
	for _, each := range slices.Clone(w.open) {
		if !slices.Contains(each.kinds, stored.kind) || c.settings.hides(stored.kind) {
			continue
		}
		if event == nil {
			event = toEvent(operation, stored)
		}
		select {
		case each.events <- event:
		default:
			w.end(each)
		}
	}
}

func toEvent(operation types.OpType, stored entry) *proto.Event {
	content := stored.resource
	if operation == types.OpDelete {
		// Our reading: what deletes a resource of an agent names the agent in the description.
		content = &types.ResourceHeader{
			Kind: stored.kind,
			Metadata: types.Metadata{
				Name: stored.resource.GetName(), Namespace: "default", Description: stored.hostID,
			},
		}
	}
	return must(client.EventToGRPC(types.Event{Type: operation, Resource: content}))
}

func (w *watches) end(ended *watch) {
	index := slices.Index(w.open, ended)
	if index >= 0 {
		w.open = slices.Delete(w.open, index, index+1)
		close(ended.ended)
	}
}

// drop ends the watches of one auth, or of all of them.
func (w *watches) drop(auth string) {
	for _, each := range slices.Clone(w.open) {
		if auth == "" || each.auth == auth {
			w.end(each)
		}
	}
}

// start opens a watch for what the role may read. Raises AccessDenied for a kind that it may not, unless the request
// allows partial success.
func (c *cluster) startWatch(auth *authInstance, request *proto.Watch) (*watch, *proto.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if auth.Backend != backendOK {
		return nil, nil, trace.ConnectionProblem(nil, "cannot watch: the cache is not initialized")
	}
	var kinds []types.WatchKind
	var names []string
	for _, kind := range request.Kinds {
		err := c.settings.allow(kind.Kind, types.VerbRead)
		if err == nil && !slices.Contains(watchable, kind.Kind) {
			err = trace.BadParameter("resource %q is not supported", kind.Kind)
		}
		if err == nil {
			kinds = append(kinds, kind)
			names = append(names, kind.Kind)
		} else if !request.AllowPartialSuccess {
			return nil, nil, err
		}
	}
	if len(kinds) == 0 {
		return nil, nil, trace.BadParameter("no kinds to watch")
	}
	made := &watch{auth.ID, names, make(chan *proto.Event, watchBuffer), make(chan struct{})}
	c.watches.open = append(c.watches.open, made)
	status := types.NewWatchStatus(kinds)
	return made, must(client.EventToGRPC(types.Event{Type: types.OpInit, Resource: status})), nil
}

// WatchEvents sends INIT and then changes, until the watch ends.
func (s *authService) WatchEvents(request *proto.Watch, stream proto.AuthService_WatchEventsServer) error {
	opened, first, err := s.cluster.startWatch(s.auth, request)
	if err != nil {
		return err
	}
	defer func() {
		s.cluster.mu.Lock()
		defer s.cluster.mu.Unlock()
		s.cluster.watches.end(opened)
	}()
	if err := stream.Send(first); err != nil {
		return err
	}
	for {
		select {
		case event := <-opened.events:
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-opened.ended:
			return trace.ConnectionProblem(nil, "watcher is closed")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
