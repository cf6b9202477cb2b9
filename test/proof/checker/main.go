// Command proof-checker judges histories of `make proof` with Porcupine, a checker that is not
// ours. It reads a history's JSON lines from standard input, and prints one line of JSON: the
// partitions of each model, and those that no order of their operations explains. Exit code: 0 if
// all are explained, 1 if one is not, 2 if the history cannot be read.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// timeout is for one partition, which has a few dozen operations at most.
const timeout = 30 * time.Second

// longestLine bounds a line: the final read of a leg has some ten thousand records.
const longestLine = 256 << 20

// operation is a line, as test/faults/ledger.ts writes it.
type operation struct {
	Index   int64           `json:"index"`
	Type    string          `json:"type"`
	Process json.RawMessage `json:"process"`
	F       string          `json:"f"`
	Value   value           `json:"value"`
}

type value struct {
	N       *int64   `json:"n"`
	Key     string   `json:"idempotencyKey"`
	Sha256  string   `json:"sha256"`
	Status  int      `json:"status"`
	ID      string   `json:"id"`
	State   string   `json:"state"`
	Records []record `json:"records"`
}

type record struct {
	ID     string `json:"id"`
	N      *int64 `json:"n"`
	State  string `json:"state"`
	Sha256 string `json:"sha256"`
	// Adopted says that it was given to a repeat of its key.
	Adopted bool `json:"adopted"`
}

// accepted says whether a record counts as accepted in the final read.
func (r record) accepted() bool {
	switch r.State {
	case "malformed", "refused", "withdrawn":
		return false
	}
	return true
}

// event is one operation with its end, in the order of lines.
type event struct {
	call, end int64
	f, typ    string
	n         int64
	key       string
	sha256    string
	status    int
	id        string
	state     string
}

type violation struct {
	Model     string `json:"model"`
	Partition string `json:"partition"`
	Verdict   string `json:"verdict"`
}

type verdict struct {
	Checker    string         `json:"checker"`
	Operations int            `json:"operations"`
	Partitions map[string]int `json:"partitions"`
	Violations []violation    `json:"violations"`
}

func main() {
	events, records, err := read()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	result := verdict{
		Checker:    "github.com/anishathalye/porcupine v1.3.1",
		Operations: len(events),
		Partitions: map[string]int{},
		Violations: []violation{},
	}
	check(&result, "accept", accepts(events, records), acceptModel)
	check(&result, "idempotency key", keys(events, records), keyModel)
	check(&result, "look-up", lookUps(events, records), lookUpModel)
	_ = json.NewEncoder(os.Stdout).Encode(result)
	if len(result.Violations) > 0 {
		os.Exit(1)
	}
}

// read pairs each invocation with its end. An operation without one, or with `info`, may take
// effect at any later time.
func read() ([]event, []record, error) {
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(make([]byte, 1<<20), longestLine)
	open := map[string]event{}
	var events []event
	var records []record
	final := false
	for scanner.Scan() {
		var op operation
		if err := json.Unmarshal(scanner.Bytes(), &op); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", len(events), err)
		}
		process := string(op.Process)
		if process == `"nemesis"` {
			continue
		}
		if op.F == "read" {
			if op.Type == "ok" {
				records, final = op.Value.Records, true
			}
			continue
		}
		if op.Type == "invoke" {
			e := event{call: op.Index, f: op.F, key: op.Value.Key, sha256: op.Value.Sha256, id: op.Value.ID}
			if op.Value.N != nil {
				e.n = *op.Value.N
			}
			open[process] = e
			continue
		}
		e, begun := open[process]
		if !begun {
			return nil, nil, fmt.Errorf("line %d ends what never began: %s", op.Index, process)
		}
		delete(open, process)
		e.end, e.typ, e.status, e.state = op.Index, op.Type, op.Value.Status, op.Value.State
		if op.Value.ID != "" {
			e.id = op.Value.ID
		}
		if op.Type == "info" {
			e.end = math.MaxInt64
		}
		events = append(events, e)
	}
	if err := scanner.Err(); err != nil {
		return nil, nil, err
	}
	if !final {
		return nil, nil, fmt.Errorf("the history has no final read")
	}
	for _, e := range open {
		e.end, e.typ = math.MaxInt64, "info"
		events = append(events, e)
	}
	sort.Slice(events, func(i, j int) bool { return events[i].call < events[j].call })
	return events, records, nil
}

type partitions map[string][]porcupine.Operation

func (p partitions) add(name string, e event, input, output any) {
	client := len(p[name])
	p[name] = append(p[name], porcupine.Operation{
		ClientId: client, Input: input, Call: e.call, Output: output, Return: e.end,
	})
}

// last is the final read, after all that ended.
func last(f string) event { return event{call: math.MaxInt64 - 1, end: math.MaxInt64, f: f} }

func check(result *verdict, name string, all partitions, model porcupine.Model) {
	result.Partitions[name] = len(all)
	names := make([]string, 0, len(all))
	for one := range all {
		names = append(names, one)
	}
	sort.Strings(names)
	for _, one := range names {
		found := porcupine.CheckOperationsTimeout(model, all[one], timeout)
		if found != porcupine.Ok {
			result.Violations = append(result.Violations, violation{name, one, string(found)})
		}
	}
}

// The set of accepted requests: what was answered 202 is in it at the end, byte for byte; what was
// answered 4xx or 500 is not.

type accept struct {
	read   bool
	typ    string
	stored bool
}

func accepts(events []event, records []record) partitions {
	type keyed struct{ key, sha256 string }
	answered, open, keyOf := map[string]bool{}, map[keyed]bool{}, map[int64]keyed{}
	for _, e := range events {
		if e.f != "submit" {
			continue
		}
		keyOf[e.n] = keyed{e.key, e.sha256}
		switch e.typ {
		case "ok":
			answered[e.id] = true
		case "info":
			open[keyOf[e.n]] = e.key != ""
		}
	}
	byID, byN := map[string]record{}, map[int64]bool{}
	for _, r := range records {
		byID[r.ID] = r
		// A record that a repeat of the key was answered with is that repeat's; an adopted one may be
		// of a repeat whose answer did not come.
		if r.N != nil && r.accepted() && !answered[r.ID] && !(r.Adopted && open[keyOf[*r.N]]) {
			byN[*r.N] = true
		}
	}
	all := partitions{}
	for _, e := range events {
		if e.f != "submit" {
			continue
		}
		name := fmt.Sprintf("request %d", e.n)
		all.add(name, e, accept{typ: e.typ}, nil)
		stored := byN[e.n]
		if e.typ == "ok" {
			r, found := byID[e.id]
			stored = found && r.accepted() && r.Sha256 == e.sha256
		}
		all.add(name, last("read"), accept{read: true, stored: stored}, nil)
	}
	return all
}

var acceptModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{false} },
	Step: func(state, input, _ any) []any {
		in := input.(accept)
		switch {
		case in.read && state.(bool) == in.stored:
			return []any{state}
		case in.read:
			return nil
		case in.typ == "ok":
			return []any{true}
		case in.typ == "fail":
			return []any{state}
		}
		return []any{state, true}
	},
}).ToModel()

// An idempotency key: the first accepted body binds it, and every 202 names the same request.

type submit struct {
	read   bool
	typ    string
	status int
	sha256 string
	id     string
	ids    string
}

// bound is what holds a key. Without an id it is a body that was answered 500: it may refuse others
// with 422 until it is withdrawn (docs/contract.md), and binds nothing.
type bound struct{ id, sha256 string }

// someID is of a request whose answer did not come.
const someID = "?"

func keys(events []event, records []record) partitions {
	keyOf := map[int64]string{}
	all := partitions{}
	for _, e := range events {
		if e.f != "submit" || e.key == "" {
			continue
		}
		keyOf[e.n] = e.key
		all.add(e.key, e, submit{typ: e.typ, status: e.status, sha256: e.sha256, id: e.id}, nil)
	}
	found := map[string][]string{}
	for _, r := range records {
		if r.N != nil && r.accepted() && keyOf[*r.N] != "" {
			found[keyOf[*r.N]] = append(found[keyOf[*r.N]], r.ID)
		}
	}
	for key := range all {
		ids := found[key]
		sort.Strings(ids)
		all.add(key, last("read"), submit{read: true, ids: fmt.Sprint(ids)}, nil)
	}
	return all
}

var keyModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{bound{}} },
	Step: func(state, input, _ any) []any {
		s, in := state.(bound), input.(submit)
		free := s.id == ""
		same := s.sha256 == in.sha256
		switch {
		case in.read && free:
			return only(s, in.ids == "[]")
		case in.read && s.id == someID:
			return only(s, in.ids != "[]" && !severalIDs(in.ids))
		case in.read:
			return only(s, in.ids == "["+s.id+"]")
		case in.typ == "ok" && (free || s.id == someID && same):
			return []any{bound{in.id, in.sha256}}
		case in.typ == "ok":
			return only(s, same && s.id == in.id)
		case in.typ == "fail" && in.status == 422:
			return only(s, s.sha256 != "" && !same)
		case in.typ == "fail" && in.status == 500 && free:
			return []any{s, bound{"", in.sha256}}
		case in.typ == "fail" || !free:
			return []any{s}
		}
		return []any{s, bound{someID, in.sha256}}
	},
}).ToModel()

func only(s any, possible bool) []any {
	if possible {
		return []any{s}
	}
	return nil
}

func severalIDs(ids string) bool {
	for _, c := range ids {
		if c == ' ' {
			return true
		}
	}
	return false
}

// A request's state as look-ups tell it: from its 202 on it is never absent, and once it has ended
// only a bounce changes it.

func lookUps(events []event, records []record) partitions {
	all := partitions{}
	seen := map[string]bool{}
	for _, e := range events {
		if e.f == "look-up" && e.typ == "ok" {
			seen[e.id] = true
		}
	}
	for _, e := range events {
		if !seen[e.id] || e.typ != "ok" {
			continue
		}
		if e.f == "submit" {
			all.add(e.id, e, "accept", nil)
		} else if e.status == 404 {
			all.add(e.id, e, "absent", nil)
		} else {
			all.add(e.id, e, e.state, nil)
		}
	}
	states := map[string]string{}
	for _, r := range records {
		states[r.ID] = r.State
	}
	for id := range all {
		all.add(id, last("read"), told(states[id]), nil)
	}
	return all
}

// told is how a partner is told of a record's state (docs/states.md).
func told(state string) string {
	switch state {
	case "":
		return "absent"
	case "completed", "rejected", "undeliverable":
		return state
	case "malformed", "refused", "withdrawn":
		return "not_accepted"
	}
	return "processing"
}

var lookUpModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{"absent"} },
	Step: func(state, input, _ any) []any {
		s, in := state.(string), input.(string)
		switch {
		case in == "accept" && s == "absent":
			return []any{"processing"}
		case in == "accept", in == s:
			return []any{s}
		case s == "processing" && (in == "completed" || in == "rejected" || in == "undeliverable"):
			return []any{in}
		case s == "completed" && in == "undeliverable":
			return []any{in}
		}
		return nil
	},
}).ToModel()
