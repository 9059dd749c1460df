package config_test

import (
	"fmt"

	"github.com/wakebus/wakebus/internal/config"
)

func ExampleLoad() {
	environment := map[string]string{
		"NATS_URL": "nats://worker:pass@10.0.0.1:4222", "REDIS_URL": "rediss://10.0.0.2:6379",
		"GRANT_KEYS_FILE": "/etc/wakebus/keys.json", "WAKEBUS_SLOTS": "lots", "WAKEBUS_DRAIN_GRACE": "30",
	}
	lookup := func(name string) (string, bool) { v, ok := environment[name]; return v, ok }
	settings, warnings, err := config.Load(config.RoleWorker, lookup, []string{"WAKEBUS_SLOT=8"})
	for _, problem := range config.Problems(err) {
		fmt.Println("problem:", problem)
	}
	for _, warning := range warnings {
		fmt.Println("warning:", warning)
	}
	fmt.Println(settings.RedisURL, settings.LeaseTTL)
	// Output:
	// problem: WAKEBUS_SLOTS: must be a whole number
	// problem: WAKEBUS_DRAIN_GRACE: must be a duration with a unit, such as 90s or 5m
	// warning: WAKEBUS_SLOT: is no setting; did you mean WAKEBUS_SLOTS?
	// rediss://10.0.0.2:6379 30s
}
