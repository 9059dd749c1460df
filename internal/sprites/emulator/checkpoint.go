package emulator

type checkpoint struct{}
