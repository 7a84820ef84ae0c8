package fencing

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	strict "sigs.k8s.io/json"
)

// schemaVersion of mark files. Another version was written by another release, whose
// fields this one could lose.
const schemaVersion = 1

// Ending is how a lifecycle ended.
type Ending string

// The endings. The zero value is a live lifecycle.
const (
	Live     Ending = ""
	Deleted  Ending = "deleted"
	Released Ending = "released"
)

// Origin is how the owner came to its backend.
type Origin string

// The origins. The zero value is a lifecycle that neither created nor imported one.
const (
	Unknown   Origin = ""
	Created   Origin = "created"   // a create began with the name free
	Foreign   Origin = "foreign"   // the name is taken by what this lifecycle did not make (B-217)
	Importing Origin = "importing" // an import began and has not succeeded (B-537)
	Adopted   Origin = "adopted"   // an import succeeded
)

// Mark is the fencing record of one volume (B-155).
type Mark struct {
	SchemaVersion int       `json:"schemaVersion"`
	Volume        string    `json:"volumeID"`   // agent volume ID
	Owner         string    `json:"ownerUID"`   // lifecycle that owns the ID now
	Generation    int64     `json:"generation"` // highest applied
	Ended         Ending    `json:"ended,omitempty"`
	Origin        Origin    `json:"origin,omitempty"`  // of the owner's backend
	Retired       []Retired `json:"retired,omitempty"` // earlier lifecycles in order, never pruned
}

// Retired is a lifecycle that can never act again.
type Retired struct {
	UID   string `json:"uid"`
	Ended Ending `json:"ended"`
}

// retirement finds uid among the earlier lifecycles.
func (m *Mark) retirement(uid string) (Retired, bool) {
	if m == nil {
		return Retired{}, false
	}
	i := slices.IndexFunc(m.Retired, func(r Retired) bool { return r.UID == uid })
	if i < 0 {
		return Retired{}, false
	}
	return m.Retired[i], true
}

// with answers a copy of the mark with one change made. The original stays as it is.
func (m *Mark) with(change func(*Mark)) *Mark {
	next := *m
	next.Retired = slices.Clone(m.Retired)
	change(&next)
	return &next
}

func (m *Mark) equal(o *Mark) bool {
	if m == nil || o == nil {
		return m == o
	}
	return m.SchemaVersion == o.SchemaVersion && m.Volume == o.Volume && m.Owner == o.Owner &&
		m.Generation == o.Generation && m.Ended == o.Ended && m.Origin == o.Origin &&
		slices.Equal(m.Retired, o.Retired)
}

// encodeMark is the content of a mark file. What parseMark would refuse is not written.
func encodeMark(m *Mark) ([]byte, error) {
	if err := m.check(m.Volume); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(m, "", "  ")
	return append(data, '\n'), err
}

// parseMark reads the mark file of volume. A mark that is not exactly what encodeMark
// could have written for this volume is an error: no field is guessed (B-159).
func parseMark(data []byte, volume string) (*Mark, error) {
	var m Mark
	strange, err := strict.UnmarshalStrict(data, &m) // a field twice, or one we would lose on the next write
	if err := errors.Join(append(strange, err)...); err != nil {
		return nil, err
	}
	return &m, m.check(volume)
}

func (m *Mark) check(volume string) error {
	if m.SchemaVersion != schemaVersion {
		return fmt.Errorf("schema version %d, want %d", m.SchemaVersion, schemaVersion)
	}
	if m.Volume != volume {
		return fmt.Errorf("is about volume %q", m.Volume)
	}
	if (Token{m.Owner, m.Generation}).missing() {
		return fmt.Errorf("has owner %q at generation %d", m.Owner, m.Generation)
	}
	if m.Ended != Live && m.Ended != Deleted && m.Ended != Released {
		return fmt.Errorf("ended as %q", m.Ended)
	}
	switch m.Origin {
	case Unknown, Created, Foreign, Importing, Adopted:
	default:
		return fmt.Errorf("came to its backend as %q", m.Origin)
	}
	seen := map[string]bool{m.Owner: true}
	for _, r := range m.Retired {
		if r.UID == "" || seen[r.UID] || r.Ended != Deleted && r.Ended != Released {
			return fmt.Errorf("retired lifecycle %q (%q) cannot be", r.UID, r.Ended)
		}
		seen[r.UID] = true
	}
	return nil
}
