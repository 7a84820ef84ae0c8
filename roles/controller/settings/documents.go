package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// maxDocument is the longest document in bytes. Nobody needs as much; a longer one would
// only fill the ledger.
const maxDocument = 16 << 10

const emptyFix = "give it a YAML document or remove it"

// checkDocuments answers what is wrong with documents by themselves, where nobody can tell
// which store and protocol they are for.
func checkDocuments(docs Documents) (bad Problems) {
	if docs.Backend != "" {
		_, more := decodeBackend(v1alpha1.BackendKey, docs.Backend)
		bad = append(bad, more...)
	}
	if docs.Protocol != "" {
		_, more := decodeProtocol(v1alpha1.ProtocolKey, docs.Protocol)
		bad = append(bad, more...)
	}
	if docs.Filesystem != "" {
		_, more := decodeFilesystem(v1alpha1.FilesystemKey, docs.Filesystem)
		bad = append(bad, more...)
	}
	return bad
}

func decodeBackend(key, doc string) (*v1alpha1.BackendOverrides, Problems) {
	o := &v1alpha1.BackendOverrides{}
	return o, decodeUnion(key, doc, backendMembers, o)
}

func decodeProtocol(key, doc string) (*v1alpha1.ProtocolOverrides, Problems) {
	o := &v1alpha1.ProtocolOverrides{}
	return o, decodeUnion(key, doc, protocolMembers, o)
}

func decodeFilesystem(key, doc string) (*v1alpha1.Filesystem, Problems) {
	fs := &v1alpha1.Filesystem{}
	d := decoder{key: key}
	root := d.parse(doc)
	if root == nil {
		return fs, d.bad
	}
	fields := d.fields("", root, filesystemFields, nil)
	return fs, d.retype(fields, fs)
}

// decodeUnion reads a document with exactly one member into typed.
func decodeUnion(key, doc string, members map[string]member, typed any) Problems {
	d := decoder{key: key}
	root := d.parse(doc)
	if root == nil {
		return d.bad
	}
	found := map[string]any{}
	for _, e := range d.entries("", root) {
		m, ok := members[e.name]
		if !ok {
			d.unknown(e, sorted(members))
			continue
		}
		found[e.name] = d.fields(e.name+".", e.value, m.tunable, m.structural)
	}
	if len(d.bad) == 0 && len(found) != 1 {
		d.refuse("", fmt.Sprintf("%d members", len(found)), "must set exactly one of "+strings.Join(sorted(members), ", "), "")
	}
	return d.retype(found, typed)
}

// decoder reads one document and collects what is wrong with it. It works on the syntax
// tree: nothing is expanded, and a value has the type its author wrote.
type decoder struct {
	key string
	bad Problems
}

func (d *decoder) refuse(path, value, why, fix string) {
	d.bad = append(d.bad, &FieldError{Key: d.key, Path: path, Value: value, Why: why, Fix: fix})
}

// parse answers the document's mapping, or nil after refusing it.
func (d *decoder) parse(doc string) *yaml.Node {
	if len(doc) > maxDocument {
		d.refuse("", fmt.Sprintf("%d bytes", len(doc)), "is too long", fmt.Sprintf("use at most %d bytes", maxDocument))
		return nil
	}
	var roots []*yaml.Node
	for reader := yaml.NewDecoder(strings.NewReader(doc)); ; {
		var n yaml.Node
		err := reader.Decode(&n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			d.refuse("", "", "is not YAML: "+err.Error(), "")
			return nil
		}
		if root := n.Content[0]; !null(root) {
			roots = append(roots, root)
		}
	}
	switch {
	case len(roots) == 0:
		d.refuse("", "", "is empty", emptyFix)
	case len(roots) > 1:
		d.refuse("", fmt.Sprintf("%d documents", len(roots)), "must be one YAML document", "keep one of them")
	case anchored(roots[0]):
		d.refuse("", "", "uses YAML anchors or aliases", "write the values out")
	case roots[0].Kind != yaml.MappingNode:
		d.refuse("", show(roots[0]), "is not a YAML mapping", "")
	default:
		return roots[0]
	}
	return nil
}

func anchored(n *yaml.Node) bool {
	return n.Anchor != "" || n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, anchored)
}

func null(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// show is a value in a message.
func show(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.ShortTag() == "!!str" {
		return strconv.Quote(n.Value)
	}
	return n.Value
}

// entry is one key of a mapping.
type entry struct {
	path, name string
	value      *yaml.Node
}

// entries are a mapping's keys in order. An explicit null is the same as nothing.
func (d *decoder) entries(prefix string, n *yaml.Node) (all []entry) {
	if n.Kind != yaml.MappingNode {
		d.refuse(strings.TrimSuffix(prefix, "."), show(n), "must be a mapping", "")
		return nil
	}
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, n.Content[i+1]
		switch {
		case n.Content[i].Kind != yaml.ScalarNode:
			d.refuse(prefix+"?", show(n.Content[i]), "is no field name", "")
		case seen[name]:
			d.refuse(prefix+name, show(value), "is set twice", "keep one of them")
		case !null(value):
			all = append(all, entry{prefix + name, name, value})
		}
		seen[name] = true
	}
	return all
}

// fields reads the fields of a mapping that rules know.
func (d *decoder) fields(prefix string, n *yaml.Node, rules map[string]rule, structural []string) map[string]any {
	found := map[string]any{}
	for _, e := range d.entries(prefix, n) {
		r, ok := rules[e.name]
		switch {
		case slices.Contains(structural, e.name):
			d.refuse(e.path, show(e.value), "is structural and cannot be set per volume", "set it on the PillarStore or PillarProtocol")
		case !ok:
			d.unknown(e, sorted(rules))
		default:
			found[e.name] = d.value(e, r)
		}
	}
	return found
}

func (d *decoder) unknown(e entry, supported []string) {
	names := "nothing"
	if len(supported) > 0 {
		names = strings.Join(supported, ", ")
	}
	d.refuse(e.path, show(e.value), "is an unknown field", "supported: "+names)
}

// value reads one field.
func (d *decoder) value(e entry, r rule) any {
	switch r.kind {
	case list:
		return d.texts(e, r)
	case keyval:
		found := map[string]string{}
		for _, inner := range d.entries(e.path+".", e.value) {
			found[inner.name] = d.text(inner)
		}
		return found
	}
	var v any
	switch tag := e.value.ShortTag(); {
	case r.kind == truth && tag == "!!bool":
		v = strings.EqualFold(e.value.Value, "true")
	case r.kind == text && tag == "!!str":
		v = e.value.Value
	case r.kind == whole && (tag == "!!int" || digits.MatchString(e.value.Value) && tag == "!!float"):
		var number int64
		if e.value.Decode(&number) != nil || !r.holds(number) {
			d.refuse(e.path, e.value.Value, "is out of range", "use "+r.wants())
		}
		return number
	default:
		d.refuse(e.path, show(e.value), "must be "+string(r.kind), "use "+r.wants())
		return nil
	}
	if len(r.choices) > 0 && !slices.Contains(r.choices, e.value.Value) {
		d.refuse(e.path, e.value.Value, "is not supported", "use "+r.wants())
	}
	return v
}

// digits are a whole number, also one that is too large for YAML to call it !!int.
var digits = regexp.MustCompile(`^[-+]?[0-9]+$`)

// holds tells whether the rule accepts the number.
func (r rule) holds(number int64) bool {
	return number >= r.min && number <= r.max && (len(r.choices) == 0 || slices.Contains(r.choices, fmt.Sprint(number)))
}

func (d *decoder) texts(e entry, r rule) []string {
	if e.value.Kind != yaml.SequenceNode {
		d.refuse(e.path, show(e.value), "must be "+string(r.kind), "")
		return nil
	}
	found := []string{}
	for i, n := range e.value.Content {
		found = append(found, d.text(entry{path: fmt.Sprintf("%s[%d]", e.path, i), value: n}))
	}
	return found
}

func (d *decoder) text(e entry) string {
	if e.value.Kind != yaml.ScalarNode || e.value.ShortTag() != "!!str" {
		d.refuse(e.path, show(e.value), "must be text", "put it in quotes")
		return ""
	}
	return e.value.Value
}

// retype moves the checked fields into their type.
func (d *decoder) retype(fields map[string]any, typed any) Problems {
	if len(d.bad) > 0 {
		return d.bad
	}
	raw, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(raw, typed)
	}
	if err != nil {
		d.refuse("", "", "cannot be read: "+err.Error(), "")
	}
	return d.bad
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
