package main

import (
	"context"
	"strings"
	"sync"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
	"k8s.io/utils/ptr"
)

const manyPods = 1000

// sources says whether the pods from before the start have been admitted again.
type sources struct{ ready bool }

func (s *sources) AddSource(string) {}
func (s *sources) AllReady() bool   { return s.ready }

// noPreemption lets every failure of the predicates stand, as for all but critical pods.
type noPreemption struct{}

func (noPreemption) HandleAdmissionFailure(
	_ context.Context, _ *v1.Pod, reasons []lifecycle.PredicateFailureReason,
) ([]lifecycle.PredicateFailureReason, error) {
	return reasons, nil
}

type kubelet struct {
	devices    *devicemanager.Probe
	admission  []lifecycle.PodAdmitHandler
	nodeStatus nodestatus.Setter
	node       *v1.Node
	sources    sources
	logger     klog.Logger

	mutex  sync.Mutex // for what follows
	active []*v1.Pod
}

// affinities defers to the topology manager, which is made after the device manager.
type affinities struct{ topologymanager.Manager }

func start(op operation) (*kubelet, error) {
	k := &kubelet{logger: klog.Background(), sources: sources{op.Ready}}
	var machine []cadvisorapi.Node
	for _, id := range op.NUMANodes {
		machine = append(machine, cadvisorapi.Node{Id: id})
	}
	topology, err := topologymanager.NewManager(machine, op.Policy, op.Scope, nil)
	if err != nil {
		return nil, err
	}
	k.devices, err = devicemanager.NewProbe(op.Socket, machine, &affinities{topology})
	if err != nil {
		return nil, err
	}
	topology.AddHintProvider(k.logger, k.devices)
	k.node = &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{}},
		Status: v1.NodeStatus{
			Capacity: quantities(op.Capacity), Allocatable: quantities(op.Allocatable),
		},
	}
	k.node.Status.Capacity[v1.ResourcePods] = *resource.NewQuantity(manyPods, resource.DecimalSI)
	k.node.Status.Allocatable[v1.ResourcePods] = *resource.NewQuantity(manyPods, resource.DecimalSI)
	getNode := func(context.Context, bool) (*v1.Node, error) { return k.node, nil }
	predicates := lifecycle.NewPredicateAdmitHandler(
		getNode, noPreemption{}, k.devices.UpdatePluginResources,
	)
	k.admission = []lifecycle.PodAdmitHandler{topology, predicates}
	k.nodeStatus = nodestatus.MachineInfo("node", manyPods, 0,
		func() (*cadvisorapi.MachineInfo, error) { return &cadvisorapi.MachineInfo{}, nil },
		func(bool) v1.ResourceList { return nil },
		k.devices.GetCapacity,
		func() v1.ResourceList { return nil },
		func(string, string, string) {}, false)
	known, running := containermap.NewContainerMap(), sets.New[string]()
	for _, each := range op.Running {
		id := each[0] + "/" + each[1]
		known.Add(each[0], each[1], id)
		running.Insert(id)
	}
	return k, k.devices.Start(k.logger, k.activePods, &k.sources, known, running)
}

func quantities(counts map[string]int64) v1.ResourceList {
	list := v1.ResourceList{}
	for name, count := range counts {
		list[v1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return list
}

// counts returns the extended resources of a list.
func counts(list v1.ResourceList) map[string]int64 {
	found := map[string]int64{}
	for name, quantity := range list {
		if strings.Contains(string(name), "/") {
			found[string(name)] = quantity.Value()
		}
	}
	return found
}

func (p pod) object() *v1.Pod {
	object := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(p.UID), Name: p.Name, Namespace: "default"},
	}
	claims := &v1.PodExtendedResourceClaimStatus{}
	for _, each := range append(append([]container{}, p.Init...), p.Containers...) {
		for _, name := range each.Claimed {
			mapping := v1.ContainerExtendedResourceRequest{ContainerName: each.Name, ResourceName: name}
			claims.RequestMappings = append(claims.RequestMappings, mapping)
		}
	}
	object.Status.ExtendedResourceClaimStatus = claims
	for _, each := range p.Init {
		object.Spec.InitContainers = append(object.Spec.InitContainers, each.object())
	}
	for _, each := range p.Containers {
		object.Spec.Containers = append(object.Spec.Containers, each.object())
	}
	return object
}

func (c container) object() v1.Container {
	object := v1.Container{Name: c.Name}
	object.Resources.Limits, object.Resources.Requests = quantities(c.Limits), quantities(c.Limits)
	if c.RestartsAlways {
		object.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	}
	return object
}

func (k *kubelet) activePods() []*v1.Pod {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.active
}

// others returns the active pods but this one.
func (k *kubelet) others(uid types.UID) []*v1.Pod {
	found := []*v1.Pod{}
	for _, each := range k.activePods() {
		if each.UID != uid {
			found = append(found, each)
		}
	}
	return found
}

func (k *kubelet) add(object *v1.Pod) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.active = append(append([]*v1.Pod{}, k.active...), object)
}

func (k *kubelet) end(uid types.UID) {
	left := k.others(uid)
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.active = left
}

// admit decides as the kubelet does: the pod is active meanwhile, and stays so if it is admitted.
func (k *kubelet) admit(op operation) answer {
	object := op.Pod.object()
	attributes := &lifecycle.PodAdmitAttributes{
		Pod: object, OtherPods: k.others(object.UID), Operation: lifecycle.ResizeOperation,
	}
	if !op.Resize {
		attributes.Operation = lifecycle.AddOperation
		k.add(object)
	}
	for _, handler := range k.admission {
		if result := handler.Admit(attributes); !result.Admit {
			if !op.Resize {
				k.end(object.UID)
			}
			return answer{"admitted": false, "reason": result.Reason, "message": result.Message}
		}
	}
	return answer{"admitted": true, "reason": "", "message": ""}
}

func (k *kubelet) run(op operation) answer {
	object := op.Pod.object()
	all := append(append([]v1.Container{}, object.Spec.InitContainers...), object.Spec.Containers...)
	for _, each := range all {
		if each.Name != op.Container {
			continue
		}
		options, err := k.devices.GetDeviceRunContainerOptions(context.TODO(), object, &each)
		if err != nil {
			return answer{"error": err.Error()}
		}
		if options == nil {
			return answer{"envs": nil}
		}
		envs := map[string]string{}
		for _, env := range options.Envs {
			envs[env.Name] = env.Value
		}
		return answer{"envs": envs}
	}
	return answer{"error": "no such container"}
}

// health returns what the pod's status says of devices: container to resource to id to health.
func (k *kubelet) health(op operation) answer {
	object, status := op.Pod.object(), v1.PodStatus{}
	for _, each := range object.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{Name: each.Name})
	}
	k.devices.UpdateAllocatedResourcesStatus(object, &status)
	told := map[string]map[string]map[string]string{}
	for _, each := range status.ContainerStatuses {
		told[each.Name] = map[string]map[string]string{}
		for _, one := range each.AllocatedResourcesStatus {
			told[each.Name][string(one.Name)] = map[string]string{}
			for _, device := range one.Resources {
				told[each.Name][string(one.Name)][string(device.ResourceID)] = string(device.Health)
			}
		}
	}
	return answer{"health": told}
}

// nodeObject returns what the node object says of extended resources.
func (k *kubelet) nodeObject() answer {
	return answer{
		"capacity":    counts(k.node.Status.Capacity),
		"allocatable": counts(k.node.Status.Allocatable),
	}
}
