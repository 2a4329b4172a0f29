// The smallest correct device plugin in Go: the files of a directory are its devices.
//
// It lists them, sends every change, and gives a container their names. It serves and registers
// again when the kubelet restarts, when its stream ends and when its socket is deleted. It passes
// `deviceplugin conformance`, and answers /healthz on DP_HTTP_ADDRESS. It has no preferred
// allocation, no settings file, no metrics and no pages. It does not wait for a missing directory,
// forget a device whose file has gone, or ask which devices pods hold. So it is a lower bound, as
// `bench --bare` is for Python. Plugins that link the Kubernetes client libraries are larger.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bench_go/v1beta1"
)

const (
	socketName   = "bench-go.sock"
	firstPause   = time.Millisecond // between attempts; doubled each time
	longestPause = 5 * time.Second
	lasting      = 10 * time.Second // a stream that ends earlier has ended soon
	callTimeout  = 15 * time.Second // the kubelet dials back for up to 10 s before it answers
)

// files is the directory whose regular files are the devices.
type files struct {
	directory string
	mutex     sync.Mutex
	healthy   map[string]bool // every name so far: a pod may hold a device whose file has gone
	list      *pb.ListAndWatchResponse
	changed   chan struct{} // closed when list is replaced
}

// read reads the directory again, and wakes all streams if it has changed.
func (f *files) read() error {
	entries, err := os.ReadDir(f.directory)
	if err != nil {
		return err
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	healthy := make(map[string]bool, len(entries))
	for name := range f.healthy {
		healthy[name] = false
	}
	for _, entry := range entries {
		if name := entry.Name(); entry.Type().IsRegular() && utf8.ValidString(name) {
			healthy[name] = true
		}
	}
	if f.list != nil && equal(f.healthy, healthy) {
		return nil
	}
	if f.changed != nil {
		close(f.changed)
	}
	f.healthy, f.list, f.changed = healthy, listOf(healthy), make(chan struct{})
	return nil
}

func equal(a, b map[string]bool) bool {
	for name, is := range b {
		if was, known := a[name]; !known || was != is {
			return false
		}
	}
	return len(a) == len(b)
}

func listOf(healthy map[string]bool) *pb.ListAndWatchResponse {
	list := &pb.ListAndWatchResponse{Devices: make([]*pb.Device, 0, len(healthy))}
	for name, is := range healthy {
		device := &pb.Device{ID: name, Health: "Unhealthy"}
		if is {
			device.Health = "Healthy"
		}
		list.Devices = append(list.Devices, device)
	}
	sort.Slice(list.Devices, func(a, b int) bool { return list.Devices[a].ID < list.Devices[b].ID })
	return list
}

// latest returns the list, and a channel that is closed when the list is replaced.
func (f *files) latest() (*pb.ListAndWatchResponse, <-chan struct{}) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.list, f.changed
}

// missing returns the first of ids that has no healthy device, if any.
func (f *files) missing(ids []string) (string, bool) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, id := range ids {
		if !f.healthy[id] {
			return id, true
		}
	}
	return "", false
}

// endpoint is one server and its registration; each is used once.
type endpoint struct {
	pb.UnimplementedDevicePluginServer
	files   *files
	server  *grpc.Server
	cancel  context.CancelFunc // ends its attempts to register
	mutex   sync.Mutex
	streams int
	lost    chan<- *endpoint // receives it when its last stream has ended
}

func (e *endpoint) GetDevicePluginOptions(context.Context, *pb.Empty) (*pb.DevicePluginOptions, error) {
	return &pb.DevicePluginOptions{}, nil
}

func (e *endpoint) ListAndWatch(_ *pb.Empty, stream pb.DevicePlugin_ListAndWatchServer) error {
	e.count(1)
	defer e.count(-1)
	for {
		list, changed := e.files.latest()
		if err := stream.Send(list); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (e *endpoint) count(more int) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.streams += more; e.streams == 0 {
		go func() { e.lost <- e }() // the receiver may be waiting for this server to stop
	}
}

func (e *endpoint) Allocate(_ context.Context, request *pb.AllocateRequest) (*pb.AllocateResponse, error) {
	response := &pb.AllocateResponse{}
	for _, each := range request.ContainerRequests {
		if id, is := e.files.missing(each.DevicesIds); is {
			return nil, status.Errorf(codes.NotFound, "no healthy device: %q", id)
		}
		names := map[string]string{"BENCH_GO": strings.Join(each.DevicesIds, ",")}
		response.ContainerResponses = append(response.ContainerResponses, &pb.ContainerAllocateResponse{Envs: names})
	}
	return response, nil
}

// plugin has one endpoint at a time.
type plugin struct {
	files     *files
	directory string
	resource  string
	current   *endpoint
	lost      chan *endpoint
	served    time.Time     // when the current endpoint was made
	pause     time.Duration // before the next one, if its stream ends soon
	again     <-chan time.Time
}

func (p *plugin) kubelet() string { return filepath.Join(p.directory, "kubelet.sock") }
func (p *plugin) socket() string  { return filepath.Join(p.directory, socketName) }

// restart serves on a new socket, and registers it in the background.
func (p *plugin) restart() error {
	p.stop()
	if err := os.Remove(p.socket()); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", p.socket())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.served, p.again = time.Now(), nil
	p.current = &endpoint{files: p.files, server: grpc.NewServer(), cancel: cancel, lost: p.lost}
	pb.RegisterDevicePluginServer(p.current.server, p.current)
	go p.current.server.Serve(listener)
	go p.register(ctx)
	return nil
}

func (p *plugin) stop() {
	if p.current != nil {
		p.current.cancel()
		p.current.server.Stop() // deletes the socket
		p.current = nil
	}
}

// register tries until the kubelet accepts, the kubelet has no socket, or ctx is cancelled.
func (p *plugin) register(ctx context.Context) {
	for pause := firstPause; ; pause = shorter(2*pause, longestPause) {
		if _, err := os.Lstat(p.kubelet()); err != nil {
			return // the watcher reports its next socket
		}
		err := p.call(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if pause > time.Second {
			log.Printf("not registered yet: %v", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

func shorter(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

func (p *plugin) call(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	connection, err := grpc.DialContext(ctx, "unix:"+p.kubelet(), grpc.WithInsecure())
	if err != nil {
		return err
	}
	defer connection.Close()
	request := &pb.RegisterRequest{Version: "v1beta1", Endpoint: socketName, ResourceName: p.resource}
	_, err = pb.NewRegistrationClient(connection).Register(ctx, request)
	return err
}

// run handles events until SIGTERM.
func (p *plugin) run(events *fsnotify.Watcher, signals <-chan os.Signal) error {
	defer p.stop()
	if err := p.restart(); err != nil {
		return err
	}
	for {
		var err error
		select {
		case <-signals:
			return nil
		case event := <-events.Events:
			err = p.follow(event)
		case problem := <-events.Errors: // events may be lost
			log.Print(problem)
			if err = p.files.read(); err == nil {
				err = p.restart()
			}
		case endpoint := <-p.lost:
			if endpoint == p.current {
				p.again = time.After(p.rest())
			}
		case <-p.again:
			err = p.restart()
		}
		if err != nil {
			return err
		}
	}
}

// rest returns how long to wait: longer with each stream in a row that has ended soon.
func (p *plugin) rest() time.Duration {
	if time.Since(p.served) > lasting {
		p.pause = 0
	}
	now := p.pause
	p.pause = shorter(2*now+firstPause, longestPause)
	return now
}

// follow handles the change of a file.
func (p *plugin) follow(event fsnotify.Event) error {
	switch {
	case filepath.Dir(event.Name) == p.files.directory:
		return p.files.read()
	case event.Name == p.kubelet() && event.Has(fsnotify.Create):
		return p.restart()
	case event.Name == p.socket() && event.Has(fsnotify.Remove):
		if _, err := os.Lstat(p.socket()); os.IsNotExist(err) {
			return p.restart()
		}
	}
	return nil
}

func main() {
	directory := flag.String("directory", "", "directory whose files are the devices")
	pluginDir := flag.String("plugin-dir", os.Getenv("DP_PLUGIN_DIR"), "the kubelet's plugin directory")
	resource := flag.String("resource", "bench.example/go", "resource name")
	flag.Parse()

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	events, err := fsnotify.NewWatcher()
	for _, watched := range []string{*directory, *pluginDir} {
		if err == nil {
			err = events.Add(watched)
		}
	}
	found := &files{directory: filepath.Clean(*directory)}
	if err == nil {
		err = found.read() // after the watch starts, or a change could be missed
	}
	if err != nil {
		log.Fatal(err)
	}
	if address := os.Getenv("DP_HTTP_ADDRESS"); address != "" && address != "off" {
		http.HandleFunc("/healthz", func(answer http.ResponseWriter, _ *http.Request) { answer.Write([]byte("ok\n")) })
		go func() { log.Fatal(http.ListenAndServe(address, nil)) }()
	}
	p := &plugin{files: found, directory: filepath.Clean(*pluginDir), resource: *resource, lost: make(chan *endpoint)}
	if err := p.run(events, signals); err != nil {
		log.Fatal(err)
	}
}
