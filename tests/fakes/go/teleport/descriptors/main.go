// Prints every message, enum and method of the API that Teleport's own Go module publishes, as JSON: fields by number
// with name, JSON key, type, label and oneof.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gogo/protobuf/gogoproto"
	"github.com/gogo/protobuf/proto"
	"github.com/gogo/protobuf/protoc-gen-gogo/descriptor"
	golangproto "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/gravitational/teleport/api/client/proto"
	_ "github.com/gravitational/teleport/api/gen/proto/go/teleport/clusterconfig/v1"
	_ "github.com/gravitational/teleport/api/gen/proto/go/teleport/presence/v1"
	_ "github.com/gravitational/teleport/api/types"
)

type field struct {
	Name     string `json:"name"`
	JSONKey  string `json:"json_key"`
	Type     string `json:"type"`
	TypeName string `json:"type_name"`
	Label    string `json:"label"`
	Oneof    string `json:"oneof"`
}

type method struct {
	Request  string `json:"request"`
	Response string `json:"response"`
	Streams  bool   `json:"streams"`
}

type dump struct {
	Messages map[string]map[int32]field  `json:"messages"`
	Enums    map[string]map[int32]string `json:"enums"`
	Methods  map[string]method           `json:"methods"`
}

var result = dump{map[string]map[int32]field{}, map[string]map[int32]string{}, map[string]method{}}

func fields(message *descriptor.DescriptorProto) map[int32]field {
	found := map[int32]field{}
	for _, entry := range message.Field {
		key := ""
		if entry.Options != nil {
			if tag, err := proto.GetExtension(entry.Options, gogoproto.E_Jsontag); err == nil {
				key, _, _ = strings.Cut(*tag.(*string), ",")
			}
		}
		oneof := ""
		if entry.OneofIndex != nil {
			oneof = message.OneofDecl[*entry.OneofIndex].GetName()
		}
		found[entry.GetNumber()] = field{
			Name: entry.GetName(), JSONKey: key, Oneof: oneof,
			Type:     strings.ToLower(strings.TrimPrefix(entry.GetType().String(), "TYPE_")),
			TypeName: strings.TrimPrefix(entry.GetTypeName(), "."),
			Label:    strings.ToLower(strings.TrimPrefix(entry.GetLabel().String(), "LABEL_")),
		}
	}
	return found
}

func addMessage(prefix string, message *descriptor.DescriptorProto) {
	name := prefix + "." + message.GetName()
	result.Messages[name] = fields(message)
	for _, nested := range message.NestedType {
		addMessage(name, nested)
	}
	for _, enum := range message.EnumType {
		addEnum(name, enum)
	}
}

func addEnum(prefix string, enum *descriptor.EnumDescriptorProto) {
	values := map[int32]string{}
	for _, value := range enum.Value {
		values[value.GetNumber()] = value.GetName()
	}
	result.Enums[prefix+"."+enum.GetName()] = values
}

func addFile(file *descriptor.FileDescriptorProto) {
	for _, message := range file.MessageType {
		addMessage(file.GetPackage(), message)
	}
	for _, enum := range file.EnumType {
		addEnum(file.GetPackage(), enum)
	}
	for _, service := range file.Service {
		for _, call := range service.Method {
			name := fmt.Sprintf("/%s.%s/%s", file.GetPackage(), service.GetName(), call.GetName())
			result.Methods[name] = method{
				strings.TrimPrefix(call.GetInputType(), "."), strings.TrimPrefix(call.GetOutputType(), "."),
				call.GetServerStreaming(),
			}
		}
	}
}

func parse(raw []byte) *descriptor.FileDescriptorProto {
	file := &descriptor.FileDescriptorProto{}
	if err := proto.Unmarshal(raw, file); err != nil {
		panic(err)
	}
	return file
}

// Teleport's two large legacy files are registered with gogo/protobuf, compressed.
func addLegacy(name string) {
	packed := proto.FileDescriptor(name)
	if packed == nil {
		panic("not registered: " + name)
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		panic(err)
	}
	raw, err := io.ReadAll(reader)
	if err != nil {
		panic(err)
	}
	addFile(parse(raw))
}

func main() {
	addLegacy("teleport/legacy/types/types.proto")
	addLegacy("teleport/legacy/client/proto/authservice.proto")
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(file.Path(), "teleport/") {
			raw, err := golangproto.Marshal(protodesc.ToFileDescriptorProto(file))
			if err != nil {
				panic(err)
			}
			addFile(parse(raw))
		}
		return true
	})
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		panic(err)
	}
}
