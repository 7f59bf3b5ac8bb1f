module refloat.dev/peers

go 1.20

require (
	github.com/openconfig/grpctunnel v0.2.0
	google.golang.org/grpc v1.51.0-dev
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/pflag v1.0.5 // indirect
)

require (
	github.com/cenkalti/backoff/v4 v4.1.1 // indirect
	github.com/fatih/color v1.13.0 // indirect
	github.com/golang/protobuf v1.5.2 // indirect
	github.com/mattn/go-colorable v0.1.12 // indirect
	github.com/mattn/go-isatty v0.0.14 // indirect
	github.com/openconfig/gnmi v0.10.0 // indirect
	github.com/spf13/cobra v1.7.0 // indirect
	github.com/summerwind/h2spec v2.2.1+incompatible
	golang.org/x/net v0.7.0 // indirect
	golang.org/x/sys v0.5.0 // indirect
	golang.org/x/text v0.7.0 // indirect
	google.golang.org/genproto v0.0.0-20221024183307-1bc688fe9f3e // indirect
	google.golang.org/protobuf v1.33.0
)
