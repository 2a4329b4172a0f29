// The driver runs the parts of a real kubelet that decide on devices, and nothing else: its device
// manager, its topology manager, its admission predicates and its node status. Operations come as
// lines of JSON on standard input, and may come while another is under way; each is answered, under
// its id, by one line on standard output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

type container struct {
	Name           string           `json:"name"`
	Limits         map[string]int64 `json:"limits"`
	RestartsAlways bool             `json:"restarts_always"`
	Claimed        []string         `json:"claimed"`
}

type pod struct {
	UID        string      `json:"uid"`
	Name       string      `json:"name"`
	Init       []container `json:"init"`
	Containers []container `json:"containers"`
}

type operation struct {
	ID          int              `json:"id"`
	Op          string           `json:"op"`
	Pod         pod              `json:"pod"`
	UID         string           `json:"uid"`
	Container   string           `json:"container"`
	Resize      bool             `json:"resize"`
	Socket      string           `json:"socket"`
	Policy      string           `json:"policy"`
	Scope       string           `json:"scope"`
	NUMANodes   []int            `json:"numa_nodes"`
	Ready       bool             `json:"ready"`
	Running     [][2]string      `json:"running"`
	Capacity    map[string]int64 `json:"capacity"`
	Allocatable map[string]int64 `json:"allocatable"`
}

type answer map[string]any

func (k *kubelet) do(op operation) answer {
	switch op.Op {
	case "admit":
		return k.admit(op)
	case "run":
		return k.run(op)
	case "health":
		return k.health(op)
	case "end":
		k.end(types.UID(op.UID))
	case "ready":
		k.sources.ready = true
	case "collect":
		k.devices.UpdateAllocatedDevices()
	case "tick":
		if err := k.nodeStatus(context.TODO(), k.node); err != nil {
			return answer{"error": err.Error()}
		}
		return k.nodeObject()
	case "expire":
		k.devices.Expire()
	case "pokes":
		return answer{"pokes": k.devices.Pokes()}
	case "progress":
		return k.devices.Progress()
	case "state":
		state := k.devices.State()
		maps.Copy(state, k.nodeObject())
		return state
	default:
		return answer{"error": "unknown operation " + strconv.Quote(op.Op)}
	}
	return answer{}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out, turn := json.NewEncoder(os.Stdout), sync.Mutex{}
	reply := func(op operation, said answer) {
		said["id"] = op.ID
		turn.Lock()
		defer turn.Unlock()
		if err := out.Encode(said); err != nil {
			os.Exit(1)
		}
	}
	var k *kubelet
	for lines.Scan() {
		var op operation
		err := json.Unmarshal(lines.Bytes(), &op)
		if err == nil && op.Op == "start" {
			k, err = start(op)
		} else if err == nil {
			go func() { reply(op, k.do(op)) }()
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		reply(op, answer{})
	}
}
