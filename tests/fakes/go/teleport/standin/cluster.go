package main

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/gravitational/teleport/api/types"
	"github.com/gravitational/trace"
)

// How often heartbeats and expiries are looked after.
const tick = 200 * time.Millisecond

// entry is a resource as it is stored; a heartbeat replaces it, so that readers may keep it.
type entry struct {
	kind, key string
	// The agent that serves it; empty for instances.
	hostID   string
	expires  time.Time
	resource types.Resource
}

// kindStore has the resources of one kind by key.
type kindStore struct {
	entries map[string]entry
	// The same in the order of their keys; nil after one came or went.
	ordered []entry
}

// sorted returns the resources in the order of their keys, until the lock is given away.
func (s *kindStore) sorted() []entry {
	if s.ordered == nil {
		s.ordered = make([]entry, 0, len(s.entries))
		for _, stored := range s.entries {
			s.ordered = append(s.ordered, stored)
		}
		slices.SortFunc(s.ordered, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	}
	return s.ordered
}

func (s *kindStore) put(stored entry) {
	if _, exists := s.entries[stored.key]; !exists {
		s.ordered = nil
	} else if s.ordered != nil {
		s.ordered[firstFrom(s.ordered, stored.key)] = stored
	}
	s.entries[stored.key] = stored
}

func (s *kindStore) remove(key string) {
	delete(s.entries, key)
	s.ordered = nil
}

// firstFrom returns the position of a key, or of the next one.
func firstFrom(ordered []entry, key string) int {
	return sort.Search(len(ordered), func(index int) bool { return ordered[index].key >= key })
}

// leaf is a cluster that trusts this one.
type leaf struct {
	Online bool `json:"online"`
	// Proxies of this cluster that it has tunnels to.
	Proxies []string `json:"proxies"`
	seen    time.Time
}

// cluster is the state of everything that the stand-in serves.
type cluster struct {
	name        string
	authorities *authorities

	mu         sync.Mutex
	settings   settings
	auths      []*authInstance
	proxies    []*proxyInstance
	agents     []*agent
	byID       map[string]*agent
	stores     map[string]*kindStore
	leaves     map[string]*leaf
	networking *types.ClusterNetworkingConfigV2
	revision   int
	// The previous networking config, and how many reads still return it.
	staleNetworking *types.ClusterNetworkingConfigV2
	staleReads      int
	watches         watches
	traffic         traffic
}

func newCluster(name string, authorities *authorities) *cluster {
	c := &cluster{
		name: name, authorities: authorities, settings: defaultSettings(), byID: map[string]*agent{},
		stores: map[string]*kindStore{}, leaves: map[string]*leaf{},
		traffic: traffic{calls: map[string]int{}, bytes: map[string]int{}},
	}
	c.networking = types.DefaultClusterNetworkingConfig().(*types.ClusterNetworkingConfigV2)
	c.stampNetworking(types.OriginDefaults)
	return c
}

func (c *cluster) stampNetworking(origin string) {
	c.revision++
	c.networking.Metadata.Revision = fmt.Sprintf("revision-%d", c.revision)
	c.networking.SetOrigin(origin)
}

func (c *cluster) store(kind string) *kindStore {
	found, exists := c.stores[kind]
	if !exists {
		found = &kindStore{entries: map[string]entry{}}
		c.stores[kind] = found
	}
	return found
}

func (c *cluster) put(stored entry) {
	c.store(stored.kind).put(stored)
	c.watches.send(c, types.OpPut, stored)
}

func (c *cluster) remove(stored entry) {
	c.store(stored.kind).remove(stored.key)
	c.watches.send(c, types.OpDelete, stored)
}

// list returns the resources of a kind as one auth sees them. An auth whose backend fails serves its cache: what it knew.
func (c *cluster) list(viewer *authInstance, kind string) []entry {
	if c.settings.hides(kind) {
		return nil
	}
	if viewer.frozen != nil {
		return viewer.frozen[kind]
	}
	found := c.store(kind).sorted()
	if kind == types.KindNode && len(c.settings.Lies) > 0 {
		found = slices.Concat(found, lies(c.settings.Lies, c.settings.Version))
	}
	return found
}

// page returns a part of a list and the key of the next one; 0 is the default limit of Teleport's API.
func (c *cluster) page(all []entry, start string, limit int32) ([]entry, string, error) {
	const mostPerPage = 1000
	if limit < 0 {
		return nil, "", trace.BadParameter("negative parameter limit")
	}
	if limit == 0 || limit > mostPerPage {
		limit = mostPerPage
	}
	first := firstFrom(all, start)
	last := min(first+int(limit), len(all))
	next := ""
	if last < len(all) {
		next = all[last].key
	} else if c.settings.EndlessPages && len(all) > 0 {
		next = all[0].key
	}
	return all[first:last], next, nil
}

// beat renews what is due and removes what expired.
func (c *cluster) beat(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.auths {
		if a.Running && a.Backend == backendOK && !now.Before(a.next) {
			c.renewInstance(now.Add(a.skew()), types.KindAuthServer, a.ID, a.address, nil)
			a.next, a.lastSeen = now.Add(seconds(c.settings.InstanceTTL/2)), now
		}
	}
	for _, p := range c.proxies {
		if p.Running && !now.Before(p.next) && c.healthyAuth() != nil {
			c.renewInstance(now, types.KindProxy, p.ID, p.ID+".example.com:3080", nil)
			p.next, p.lastSeen = now.Add(seconds(c.settings.InstanceTTL/2)), now
		}
	}
	for _, a := range c.agents {
		c.renewAgent(a, now)
	}
	for _, l := range c.leaves {
		if l.Online {
			l.seen = now
		}
	}
	c.expire(now)
}

func (c *cluster) expire(now time.Time) {
	for _, store := range c.stores {
		var over []entry
		for _, stored := range store.entries {
			if stored.expires.Before(now) {
				over = append(over, stored)
			}
		}
		for _, stored := range over {
			c.remove(stored)
		}
	}
}

func (c *cluster) renewInstance(now time.Time, kind, id, address string, labels map[string]string) {
	expires := now.Add(seconds(c.settings.InstanceTTL)).UTC()
	c.put(entry{kind: kind, key: id, expires: expires, resource: &types.ServerV2{
		Kind: kind, Version: types.V2,
		Metadata: types.Metadata{Name: id, Namespace: "default", Labels: labels, Expires: &expires},
		Spec:     types.ServerSpecV2{Addr: address, Hostname: id, Version: c.settings.Version},
	}})
}

func (c *cluster) renewAgent(a *agent, now time.Time) {
	if a.stopped || now.Before(a.next) {
		return
	}
	proxies := c.tunnelProxies(a)
	if len(proxies) == 0 {
		return
	}
	its := c.auth(a.auth)
	if its == nil || !its.Running {
		// Its connection ended, so it makes a new one; an auth that still holds it keeps it.
		its = c.healthyAuth()
		if its == nil {
			return
		}
		a.auth = its.ID
	}
	if its.Backend != backendOK {
		return
	}
	a.next, a.lastSeen = now.Add(seconds(c.settings.AgentTTL/2)), now
	if !c.settings.Peering {
		proxies = nil
	}
	for _, made := range a.build(c.settings.Version, proxies, now.Add(its.skew()+seconds(c.settings.AgentTTL)).UTC()) {
		c.put(made)
	}
}

func (c *cluster) auth(id string) *authInstance {
	index := slices.IndexFunc(c.auths, func(a *authInstance) bool { return a.ID == id })
	if index < 0 {
		return nil
	}
	return c.auths[index]
}

func (c *cluster) proxy(id string) *proxyInstance {
	index := slices.IndexFunc(c.proxies, func(p *proxyInstance) bool { return p.ID == id })
	if index < 0 {
		return nil
	}
	return c.proxies[index]
}

func (c *cluster) healthyAuth() *authInstance {
	for _, a := range c.auths {
		if a.Running && a.Backend == backendOK {
			return a
		}
	}
	return nil
}

// addAgents adds agents of a kind, connected to auths and proxies by turns. Their first heartbeats have come; the next are
// spread over the period.
func (c *cluster) addAgents(kind string, count, resources int) {
	now := time.Now()
	for range count {
		number := len(c.agents) + 1
		a := newAgent(number, kind, resources)
		a.auth, a.proxy = c.auths[number%len(c.auths)].ID, c.proxies[number%len(c.proxies)].ID
		c.agents = append(c.agents, a)
		c.byID[a.id] = a
		c.renewAgent(a, now)
		a.next = now.Add(seconds(c.settings.AgentTTL / 2 * float64(number%1000+1) / 1000))
	}
}

// freeze keeps for an auth what it knows now.
func (c *cluster) freeze(a *authInstance) {
	frozen := map[string][]entry{}
	for kind, store := range c.stores {
		frozen[kind] = slices.Clone(store.sorted())
	}
	a.frozen = frozen
}

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }
