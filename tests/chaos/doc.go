// Package chaos holds one test: many jobs, and a seeded script that kills, freezes, drains and restarts everything under
// them. What must hold is judged from the outside.
package chaos
