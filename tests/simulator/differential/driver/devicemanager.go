// This file is compiled into the kubelet's own package, for what the driver has to see of it.

package devicemanager

import (
	"path/filepath"
	"sort"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	plugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// Probe is a device manager whose state can be seen.
type Probe struct {
	*ManagerImpl
	lists map[string]int
}

// NewProbe makes a device manager that listens on socket.
func NewProbe(
	socket string, machine []cadvisorapi.Node, store topologymanager.Store,
) (*Probe, error) {
	manager, err := newManagerImpl(klog.Background(), socket, machine, store)
	if err != nil {
		return nil, err
	}
	probe := &Probe{manager, map[string]int{}}
	manager.server, err = plugin.NewServer(klog.Background(), socket, manager, probe)
	manager.checkpointdir, _ = filepath.Split(socket)
	return probe, err
}

// PluginListAndWatchReceiver counts the lists that have been taken in.
func (p *Probe) PluginListAndWatchReceiver(
	logger klog.Logger, resource string, response *pluginapi.ListAndWatchResponse,
) {
	p.ManagerImpl.PluginListAndWatchReceiver(logger, resource, response)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.lists[resource]++
}

// Progress returns the lists taken in, the open streams, and how many of those must end soon.
func (p *Probe) Progress() map[string]any {
	streams, ending := plugin.OpenStreams()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	lists := map[string]int{}
	for resource, count := range p.lists {
		lists[resource] = count
	}
	return map[string]any{"lists": lists, "streams": streams, "ending": ending}
}

// Expire lets the grace period of every lost plugin pass.
func (p *Probe) Expire() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, known := range p.endpoints {
		if known.e.isStopped() {
			known.e.setStopTime(time.Now().Add(-2 * endpointStopGracePeriod))
		}
	}
}

// Pokes returns the pods whose status was to be looked at since the last call.
func (p *Probe) Pokes() [][]string {
	found := [][]string{}
	for {
		select {
		case update := <-p.update:
			uids := append([]string{}, update.PodUIDs...)
			sort.Strings(uids)
			found = append(found, uids)
		default:
			return found
		}
	}
}

// State returns all that the manager knows.
func (p *Probe) State() map[string]any {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	endpoints := map[string]string{}
	for resource, known := range p.endpoints {
		endpoints[resource] = "running"
		if known.e.isStopped() {
			endpoints[resource] = "stopped"
		}
	}
	devices := map[string]map[string]string{}
	for resource, listed := range p.allDevices {
		devices[resource] = map[string]string{}
		for id, device := range listed {
			devices[resource][id] = device.Health
		}
	}
	return map[string]any{
		"endpoints": endpoints,
		"devices":   devices,
		"healthy":   lists(p.healthyDevices),
		"unhealthy": lists(p.unhealthyDevices),
		"allocated": lists(p.allocatedDevices),
		"grants":    p.grants(),
	}
}

// grants returns, by pod, container and resource, the ids by NUMA node.
func (p *Probe) grants() [][]any {
	found := [][]any{}
	for _, entry := range p.podDevices.toCheckpointData(klog.Background()) {
		nodes := map[int64][]string{}
		for node, ids := range entry.DeviceIDs {
			nodes[node] = append([]string{}, ids...)
			sort.Strings(nodes[node])
		}
		found = append(found, []any{entry.PodUID, entry.ContainerName, entry.ResourceName, nodes})
	}
	return found
}

func lists(known map[string]sets.Set[string]) map[string][]string {
	found := map[string][]string{}
	for resource, ids := range known {
		found[resource] = sets.List(ids)
	}
	return found
}
