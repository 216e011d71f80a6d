module godwit.invalid/clients

go 1.24.0

require (
	github.com/eclipse/paho.golang v0.23.0
	github.com/xdg-go/scram v1.4.0
)

require (
	github.com/xdg-go/stringprep v1.0.4 // indirect
	golang.org/x/text v0.3.8 // indirect
)
