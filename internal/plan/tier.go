package plan

// Tier is a user's plan; limits are set by tier.
type Tier string

// The closed set of tiers.
const (
	TierFree     Tier = "free"
	TierPro      Tier = "pro"
	TierFounder  Tier = "founder"
	TierBusiness Tier = "business"
)

// Tiers lists the closed set. The caller may keep the slice.
func Tiers() []Tier { return []Tier{TierFree, TierPro, TierFounder, TierBusiness} }

// Valid reports whether t is one of the closed set.
func (t Tier) Valid() bool {
	switch t {
	case TierFree, TierPro, TierFounder, TierBusiness:
		return true
	}
	return false
}
