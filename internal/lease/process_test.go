package lease_test

func runChild(string) int { return 2 }
