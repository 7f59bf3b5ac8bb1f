// A stand-in for a Teleport cluster: auths and proxies that publish what Teleport 16 to 18 publish and Refloat reads, over
// mutual TLS. It is built on Teleport's own Go module for its API: types, errors, events and identity files are
// Teleport's, so it proves the wire. It does not prove the server: what a role may do, which lists a cache serves and what
// happens to watches is our reading of documentation.
//
// It prints one JSON object when it is ready; a test changes its state with the HTTP API of control.go.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	folder := flag.String("folder", ".", "where identity files and certificates are written")
	name := flag.String("cluster", "root.example.com", "name of the cluster")
	auths := flag.Int("auths", 2, "number of auths")
	proxies := flag.Int("proxies", 2, "number of proxies")
	ttl := flag.Duration("identity-ttl", time.Hour, "validity of the identity refloat")
	flag.Parse()

	c := newCluster(*name, newAuthorities(*name, *folder))
	for number := 1; number <= *auths; number++ {
		made := &authInstance{ID: fmt.Sprintf("auth-%d", number), Running: true, Backend: backendOK}
		made.config = c.authorities.serverConfig(made.ID)
		if err := made.start(c); err != nil {
			log.Fatal(err)
		}
		c.auths = append(c.auths, made)
	}
	for number := 1; number <= *proxies; number++ {
		made := &proxyInstance{ID: fmt.Sprintf("proxy-%d", number), Running: true}
		if err := made.start(c); err != nil {
			log.Fatal(err)
		}
		c.proxies = append(c.proxies, made)
	}
	identity, err := c.authorities.writeIdentity("refloat", *ttl)
	if err != nil {
		log.Fatal(err)
	}
	address := ""
	listener, err := listen(&address)
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(http.Serve(listener, c.control())) }()
	c.beat(time.Now())
	c.mu.Lock()
	ready := c.state()
	c.mu.Unlock()
	ready["event"], ready["control"], ready["identity"] = "ready", address, identity
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		log.Fatal(err)
	}
	for now := range time.Tick(tick) {
		c.beat(now)
	}
}
