//go:build programs

// Package peers pins the programs that Refloat is tested against: it is never built, it makes go.mod and go.sum hold
// what they need. Our tunnel is tested against openconfig/grpctunnel, our HTTP/2 by h2spec.
package peers

import (
	_ "github.com/openconfig/grpctunnel/cmd/client"
	_ "github.com/openconfig/grpctunnel/cmd/server"
	_ "github.com/openconfig/grpctunnel/cmd/target"
	_ "github.com/summerwind/h2spec/cmd/h2spec"
)
