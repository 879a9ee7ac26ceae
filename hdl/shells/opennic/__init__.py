"""The cards inside the boxes of OpenNIC."""
