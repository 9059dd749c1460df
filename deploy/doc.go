// Package deploy holds what a deployment is made of: the broker's configuration with a user for each part, manifests,
// dashboards and alerts. Its tests run the whole system under that configuration, and try what each user may not do.
package deploy
