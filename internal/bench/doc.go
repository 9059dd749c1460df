// Package bench measures jobs through a whole Wakebus: it acts as a web app would, closed loop or paced, and tells how long
// jobs took, how many went through, and what each one cost.
//
// A Rig is a Wakebus of the package's own, on loopback; a Target is any Wakebus that is to be measured; a Caller sends one
// tenant's jobs and hears their events; Measure runs the phases of `worker bench` against a Target:
//
//	warm up > paced (latency, each job beside a direct exec) > load (throughput, cost) > output > lease
package bench
