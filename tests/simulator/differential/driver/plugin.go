// This file is compiled into the kubelet's own package, to know when streams have ended.

package v1beta1

import (
	"context"
	"sync"
)

var streams = struct {
	sync.Mutex
	open map[*client]string
}{open: map[*client]string{}}

// runClient reads a plugin's lists and deals with the end of its stream.
func (s *server) runClient(ctx context.Context, name string, c Client) {
	mine := c.(*client)
	streams.Lock()
	streams.open[mine] = name
	streams.Unlock()
	s.readClient(ctx, name, c)
	streams.Lock()
	delete(streams.open, mine)
	streams.Unlock()
}

// OpenStreams returns how many streams each resource has, and how many of all must end soon.
func OpenStreams() (map[string]int, int) {
	streams.Lock()
	defer streams.Unlock()
	open, ending := map[string]int{}, 0
	for each, name := range streams.open {
		open[name]++
		each.mutex.Lock()
		if each.grpc == nil {
			ending++
		}
		each.mutex.Unlock()
	}
	return open, ending
}
