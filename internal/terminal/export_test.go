package terminal

// Align is align, for its property.
var Align = align
