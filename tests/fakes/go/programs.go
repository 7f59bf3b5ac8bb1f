//go:build programs

// Package peers pins the programs of openconfig/grpctunnel that our tunnel is tested against: it is never built,
// it makes go.mod and go.sum hold what they need.
package peers

import (
	_ "github.com/openconfig/grpctunnel/cmd/client"
	_ "github.com/openconfig/grpctunnel/cmd/server"
	_ "github.com/openconfig/grpctunnel/cmd/target"
)
