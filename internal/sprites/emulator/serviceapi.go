package emulator

import (
	"net/http"
	"reflect"
	"slices"
)

func serviceRoutes() []route {
	s := spritePath + "/services"
	return []route{
		{"GET", s, "service.list", false, (*exchange).listServices},
		{"GET", s + "/{service}", "service.get", false, (*exchange).getService},
		{"PUT", s + "/{service}", "service.put", true, (*exchange).putService},
		{"DELETE", s + "/{service}", "service.delete", true, (*exchange).deleteService},
		{"POST", s + "/{service}/start", "service.start", true, (*exchange).startService},
		{"POST", s + "/{service}/stop", "service.stop", true, (*exchange).stopService},
		{"POST", s + "/{service}/restart", "service.restart", true, (*exchange).restartService},
		{"GET", s + "/{service}/logs", "service.logs", true, (*exchange).serviceLogs},
		{"POST", s + "/signal", "service.signal", true, (*exchange).signalService},
	}
}

type serviceStateBody struct {
	Name     string       `json:"name"`
	Status   serviceState `json:"status"`
	PID      int          `json:"pid,omitempty"`
	Started  string       `json:"started_at,omitempty"`
	Error    string       `json:"error,omitempty"`
	Restarts int          `json:"restart_count"`
}

type serviceBody struct {
	serviceSpec
	State serviceStateBody `json:"state"`
}

// serviceBody needs the Sprite's lock.
func (sp *sprite) serviceBody(spec *serviceSpec) serviceBody {
	b := serviceBody{serviceSpec: *spec, State: serviceStateBody{Name: spec.Name, Status: serviceStopped}}
	b.Stopped = false // ours, not the API's
	if b.Args == nil {
		b.Args = []string{}
	}
	if b.Needs == nil {
		b.Needs = []string{}
	}
	if v := sp.services[spec.Name]; v != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		b.State = serviceStateBody{Name: spec.Name, Status: v.state, PID: v.pid, Error: v.failure, Restarts: v.restarts}
		if !v.started.IsZero() {
			b.State.Started = stamp(v.started)
		}
	}
	return b
}

// documentedWake wakes for the calls that the reference says wake and the live
// service was seen not to.
func (x *exchange) documentedWake() bool {
	if !x.srv.cfg.Documented {
		return true
	}
	if err := x.acquire(); err != nil {
		x.refuse(err)
		return false
	}
	return true
}

func (x *exchange) listServices() {
	if !x.documentedWake() {
		return
	}
	sp := x.sprite
	sp.mu.Lock()
	out := []serviceBody{}
	for _, spec := range sp.rec.Services {
		out = append(out, sp.serviceBody(spec))
	}
	sp.mu.Unlock()
	x.json(http.StatusOK, out)
}

func (x *exchange) getService() {
	if !x.documentedWake() {
		return
	}
	sp, name := x.sprite, x.r.PathValue("service")
	sp.mu.Lock()
	i := sp.serviceIndex(name)
	var b serviceBody
	if i >= 0 {
		b = sp.serviceBody(sp.rec.Services[i])
	}
	sp.mu.Unlock()
	if i < 0 {
		x.text(http.StatusNotFound, "service not found: %s", name)
		return
	}
	x.json(http.StatusOK, b)
}

func (x *exchange) putService() {
	spec := serviceSpec{Name: x.r.PathValue("service")}
	if err := x.body(&spec); err != nil {
		x.text(http.StatusBadRequest, "%v", err)
		return
	}
	spec.Name, spec.Stopped = x.r.PathValue("service"), false
	if !serviceName.MatchString(spec.Name) || spec.Cmd == "" {
		x.text(http.StatusBadRequest, "service needs a plain name and a cmd")
		return
	}
	v, old, status := x.sprite.define(spec)
	if status != 0 {
		x.text(status, "service %s: another service already has an HTTP port configured, or there are too many", spec.Name)
		return
	}
	if old != nil {
		old.stop(killGrace)
	}
	n := v.log.end()
	v.begin()
	x.followService(v, n, false)
}

// define stores a spec. It gives the service to start, the one it replaces, or
// the status of a refusal.
func (sp *sprite) define(spec serviceSpec) (v, old *service, status int) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	i := sp.serviceIndex(spec.Name)
	if sp.srv.cfg.Documented && spec.HTTPPort != nil {
		for _, other := range sp.rec.Services {
			if other.Name != spec.Name && other.HTTPPort != nil {
				return nil, nil, http.StatusConflict
			}
		}
	}
	if i < 0 && len(sp.rec.Services) >= maxServices {
		return nil, nil, http.StatusConflict
	}
	old = sp.services[spec.Name]
	if i < 0 {
		sp.rec.Services = append(sp.rec.Services, &spec)
	} else {
		same := *sp.rec.Services[i]
		same.Stopped = false
		*sp.rec.Services[i] = spec
		if old != nil && reflect.DeepEqual(same, spec) {
			sp.save()
			return old, nil, 0
		}
	}
	sp.save()
	v = newService(sp, spec)
	sp.services[spec.Name] = v
	return v, old, 0
}

// defined finds the service of the path, and answers 404 itself.
func (x *exchange) defined(name string) *service {
	sp := x.sprite
	sp.mu.Lock()
	i := sp.serviceIndex(name)
	var v *service
	if i >= 0 {
		if v = sp.services[name]; v == nil {
			v = newService(sp, *sp.rec.Services[i])
			sp.services[name] = v
		}
	}
	sp.mu.Unlock()
	if v == nil {
		x.text(http.StatusNotFound, "service not found: %s", name)
	}
	return v
}

func (sp *sprite) setStopped(name string, stopped bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if i := sp.serviceIndex(name); i >= 0 {
		sp.rec.Services[i].Stopped = stopped
		sp.save()
	}
}

func (x *exchange) deleteService() {
	name := x.r.PathValue("service")
	v := x.defined(name)
	if v == nil {
		return
	}
	if x.sprite.needed(name) {
		x.text(http.StatusConflict, "service %s is needed by another", name)
		return
	}
	v.stop(killGrace)
	sp := x.sprite
	sp.mu.Lock()
	sp.rec.Services = slices.DeleteFunc(sp.rec.Services, func(s *serviceSpec) bool { return s.Name == name })
	delete(sp.services, name)
	sp.save()
	sp.mu.Unlock()
	v.log.close()
	x.w.WriteHeader(http.StatusNoContent)
}

func (sp *sprite) needed(name string) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return slices.ContainsFunc(sp.rec.Services, func(s *serviceSpec) bool { return slices.Contains(s.Needs, name) })
}

func (x *exchange) startService() {
	v := x.defined(x.r.PathValue("service"))
	if v == nil {
		return
	}
	x.sprite.setStopped(v.spec.Name, false)
	n := v.log.end()
	v.begin()
	x.followService(v, n, false)
}

func (x *exchange) stopService() {
	v := x.defined(x.r.PathValue("service"))
	if v == nil {
		return
	}
	patience, ok := x.duration("timeout", killGrace)
	if !ok {
		return
	}
	x.sprite.setStopped(v.spec.Name, true)
	n := v.log.end()
	if _, ran := v.stop(patience); !ran {
		x.text(http.StatusConflict, "service %s is not running", v.spec.Name)
		return
	}
	x.followService(v, n, true)
}

func (x *exchange) restartService() {
	v := x.defined(x.r.PathValue("service"))
	if v == nil {
		return
	}
	x.sprite.setStopped(v.spec.Name, false)
	v.stop(killGrace)
	n := v.log.end()
	v.begin()
	x.followService(v, n, false)
}

func (x *exchange) signalService() {
	var b struct{ Name, Signal string }
	if err := x.body(&b); err != nil {
		x.text(http.StatusBadRequest, "%v", err)
		return
	}
	sig, err := signalByName(b.Signal)
	if err != nil {
		x.text(http.StatusBadRequest, "%v", err)
		return
	}
	v := x.defined(b.Name)
	if v == nil {
		return
	}
	if !v.signal(sig) {
		x.text(http.StatusConflict, "service %s is not running", b.Name)
		return
	}
	x.w.WriteHeader(http.StatusNoContent)
}
